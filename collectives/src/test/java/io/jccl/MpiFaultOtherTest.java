package io.jccl;

import io.jccl.testkit.MpiLauncher;
import java.util.List;
import org.junit.jupiter.api.Tag;

/** The same on the other MPI of this machine. */
@Tag("exhaustive")
class MpiFaultOtherTest extends MpiFaultTest {
    @Override
    List<MpiLauncher> launchers() {
        List<MpiLauncher> here = here();
        return here.subList(here.size() - 1, here.size());
    }
}

package io.jccl;

import io.jccl.testkit.MpiLauncher;
import java.util.List;
import org.junit.jupiter.api.Tag;

/** The contract on MPICH with collectives that block and one thread at a time in MPI. */
@Tag("exhaustive")
class MpichSerializedEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }

    @Override
    protected List<String> jvmFlags() {
        return SERIALIZED;
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {2, 3};
    }

    @Override
    protected int thinness(int ranks) {
        return 8;
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {2};
    }
}

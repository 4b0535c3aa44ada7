package io.jccl;

import io.jccl.testkit.MpiLauncher;
import org.junit.jupiter.api.Tag;

/** The contract on MPICH, with its blocking collectives. */
@Tag("exhaustive")
class MpichEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }

    /** Its ranks poll while they wait: where they outnumber the cores, each case takes long. */
    @Override
    protected int thinness(int ranks) {
        return ranks == 2 ? 4 : 8;
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {2};
    }
}

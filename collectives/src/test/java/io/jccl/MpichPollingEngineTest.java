package io.jccl;

import io.jccl.testkit.MpiLauncher;
import java.util.List;

/**
 * The contract on MPICH with its non-blocking collectives, calls that count to few elements only,
 * and one thread at a time in MPI.
 */
class MpichPollingEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }

    @Override
    protected List<String> jvmFlags() {
        return POLLING;
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

    @Override
    protected boolean fewTypes() {
        return true;
    }
}

package io.jccl;

import io.jccl.testkit.MpiLauncher;

/** The contract on Open MPI, with its blocking collectives. */
class OpenMpiEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.OPEN_MPI;
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

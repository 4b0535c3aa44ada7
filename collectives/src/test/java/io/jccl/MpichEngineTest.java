package io.jccl;

import io.jccl.contract.MpiLauncher;

/** The contract on MPICH, with its blocking collectives. */
class MpichEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }
}

package io.jccl;

import io.jccl.contract.MpiLauncher;

/** The contract on MPICH, with its blocking collectives. */
class MpichEngineTest extends MpiEngineTest {
    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }

    /** MPICH's ranks never yield while they wait: the more of them, the slower on few cores. */
    @Override
    protected int thinness(int ranks) {
        return ranks < 4 ? 4 : 8;
    }
}

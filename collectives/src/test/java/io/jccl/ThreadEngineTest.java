package io.jccl;

import java.util.List;

/** The host engine with ranks as threads of this JVM. */
class ThreadEngineTest extends ThreadedContractTest {
    @Override
    protected List<Communicator> open(int ranks, CommunicatorOptions options) {
        return Communicator.local(ranks, options);
    }

    /** Three, which is no power of two, have the processes and those in another order. */
    @Override
    protected int[] coveredSizes() {
        return new int[] {4};
    }

    /** Eight share few cores, and take as long as all other sizes together. */
    @Override
    protected int thinness(int ranks) {
        return ranks == 8 ? 3 : 1;
    }
}

package io.jccl;

/** The host engine with ranks as processes that share memory. */
class ProcessEngineTest extends ProcessContractTest {
    @Override
    protected String engine() {
        return "host";
    }

    @Override
    protected int thinness(int ranks) {
        return ranks < 5 ? 3 : ranks;
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

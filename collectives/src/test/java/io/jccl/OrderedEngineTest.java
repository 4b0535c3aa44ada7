package io.jccl;

import io.jccl.engine.host.OrderedRanks;
import java.util.List;
import java.util.Random;

/** The host engine where ranks pass data on in an order of a plan. */
class OrderedEngineTest extends ThreadedContractTest {
    @Override
    protected List<Communicator> open(int ranks, CommunicatorOptions options) {
        long seed = System.nanoTime();
        System.out.println("OrderedEngineTest: seed of the order " + seed);
        Random random = new Random(seed);
        int[] order = new int[ranks];
        for (int i = 0; i < ranks; i++) {
            int j = random.nextInt(i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        return OrderedRanks.open(order, 2, options);
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {2, 3, 5, 8};
    }

    @Override
    protected int thinness(int ranks) {
        return 8;
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {3};
    }

    @Override
    protected boolean fewTypes() {
        return true;
    }
}

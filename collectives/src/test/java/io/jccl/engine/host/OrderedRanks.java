package io.jccl.engine.host;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import java.util.List;

/** Ranks that pass data on in an order that is not their own. */
public final class OrderedRanks {
    private OrderedRanks() {}

    /** Ranks as threads, with a plan. */
    public static List<Communicator> open(int[] order, int nodes, CommunicatorOptions options) {
        List<Communicator> ranks = HostEngine.local(order.length, options);
        for (Communicator c : ranks) {
            HostCommunicator unused =
                    ((HostCommunicator) c).plan(new HostPlan(order.clone(), nodes));
        }
        return ranks;
    }
}

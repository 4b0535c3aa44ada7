package io.jccl.examples;

import io.jccl.Communicator;
import java.util.Locale;
import java.util.function.LongFunction;

/** Trains a network in both ways of {@link Training}, and compares with a single rank. */
final class Comparison {
    private static final int EXAMPLES = 512;

    /** Sums of other shares, in float32. */
    private static final double TOLERANCE = 1e-5;

    private Comparison() {}

    private interface Way {
        double[] train(Communicator comm, Network network, Regression examples);
    }

    /**
     * Trains in both ways as a rank of a launcher, and throws unless each loss is that of a single
     * rank with all examples.
     *
     * @param networks makes a network of initial values by a seed
     */
    static void run(String framework, LongFunction<? extends Network> networks) {
        Regression all = Regression.of(EXAMPLES, Training.FEATURES, 1);
        try (Communicator comm = Communicator.fromEnvironment()) {
            run(framework + ", reduced", comm, all, networks, Training::reduced);
            run(framework + ", sharded", comm, all, networks, Training::sharded);
        }
    }

    private static void run(
            String name,
            Communicator comm,
            Regression all,
            LongFunction<? extends Network> networks,
            Way way) {
        double[] alone;
        try (Communicator one = Communicator.local(1).getFirst();
                Network network = networks.apply(1)) {
            alone = way.train(one, network, all);
        }
        double[] losses;
        try (Network network = networks.apply(1)) {
            losses = way.train(comm, network, all.share(comm.rank(), comm.size()));
        }
        check(name, alone, losses);
        System.out.printf(
                Locale.ROOT,
                "%-16s rank %d of %d: loss from %.4f to %.4f, as on one rank%n",
                name,
                comm.rank(),
                comm.size(),
                losses[0],
                losses[Training.STEPS - 1]);
    }

    /** Throws unless the losses are those of a single rank, and have fallen. */
    private static void check(String name, double[] alone, double[] losses) {
        for (int step = 0; step < losses.length; step++) {
            if (!(Math.abs(losses[step] - alone[step]) <= TOLERANCE * (1 + alone[step]))) {
                throw new IllegalStateException(
                        "%s: step %s has the loss %s, on one rank %s"
                                .formatted(name, step, losses[step], alone[step]));
            }
        }
        double last = losses[losses.length - 1];
        if (!(last < losses[0] / 2)) {
            throw new IllegalStateException(
                    name + ": the loss went from " + losses[0] + " to " + last);
        }
    }
}

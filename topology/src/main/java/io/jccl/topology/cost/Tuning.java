package io.jccl.topology.cost;

import io.jccl.topology.Operation;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;

/**
 * Latency and bandwidth of an operation on some GPUs, for each algorithm and protocol. A prediction
 * takes well below a microsecond.
 *
 * <p>Immutable, and safe for use by many threads.
 */
public final class Tuning {
    /**
     * An algorithm and protocol.
     *
     * @param algorithm the algorithm
     * @param protocol the protocol
     * @param latencyUs time for an empty operation, microseconds
     * @param algbwGBps bandwidth for very large sizes, GB/s (10^9 bytes)
     */
    public record Way(Algorithm algorithm, Protocol protocol, double latencyUs, double algbwGBps) {}

    /**
     * A way, and what NCCL's model of it leaves out.
     *
     * @param start what its start takes
     * @param share what it reaches, as a share of the bandwidth that NCCL ranks it by
     */
    record Timed(Way way, Start start, double share) {}

    private final Parameters parameters;
    private final Operation op;
    private final int ranks;
    private final List<Way> ways;
    private final List<Timed> timed;
    private final List<AlgorithmBound> bounds;
    private final List<String> assumptions;

    /** See {@link Prediction#spread}: below 1 MiB, up to 8 MiB, up to 256 MiB, above. */
    private final double[] spread;

    /** Size from which on a ring's latency is longer, and how much; see ring.plateau. */
    private final double plateauBytes;

    private final double plateau;

    Tuning(
            Parameters parameters,
            Operation op,
            int ranks,
            List<Timed> timed,
            List<AlgorithmBound> bounds,
            List<String> assumptions,
            double[] spread,
            double plateauBytes,
            double plateau) {
        this.parameters = parameters;
        this.op = op;
        this.ranks = ranks;
        this.timed = List.copyOf(timed);
        this.bounds = List.copyOf(bounds);
        this.assumptions = List.copyOf(assumptions);
        this.spread = spread;
        ways = timed.stream().map(Timed::way).toList();
        this.plateauBytes = plateauBytes;
        this.plateau = plateau;
    }

    /**
     * All algorithms and protocols that can be used.
     *
     * @return one entry for each algorithm and protocol
     */
    public List<Way> ways() {
        return ways;
    }

    /**
     * What each algorithm can reach for very large sizes.
     *
     * @return one entry for each algorithm, the highest bandwidth first
     */
    public List<AlgorithmBound> bounds() {
        return bounds;
    }

    /**
     * Assumptions of the predictions beyond the links of a machine: how many NICs, how much of them
     * the network leaves, and figures of other machines used for unknown ones.
     *
     * @return a phrase each; none for one machine that is not a rack
     */
    public List<String> assumptions() {
        return assumptions;
    }

    /**
     * The same without some algorithms or protocols, as {@code NCCL_ALGO} and {@code NCCL_PROTO} do
     * it.
     *
     * @param algorithms those to keep
     * @param protocols those to keep
     * @return what is left
     * @throws IllegalArgumentException if nothing is left
     */
    public Tuning only(Set<Algorithm> algorithms, Set<Protocol> protocols) {
        List<Timed> left =
                timed.stream()
                        .filter(w ->
                                algorithms.contains(w.way.algorithm)
                                        && protocols.contains(w.way.protocol))
                        .toList();
        if (left.isEmpty()) {
            throw new IllegalArgumentException(
                    op.command()
                            + " on these GPUs cannot use "
                            + algorithms
                            + " with "
                            + protocols
                            + ": it can use "
                            + ways.stream().map(w -> w.algorithm + " " + w.protocol).toList());
        }
        return new Tuning(
                parameters,
                op,
                ranks,
                left,
                bounds.stream()
                        .filter(b -> left.stream().anyMatch(w -> w.way.algorithm == b.algorithm()))
                        .map(b ->
                                new AlgorithmBound(
                                        b.algorithm(),
                                        reached(left, b.algorithm(), op.busFactor(ranks)),
                                        b.boundGBps(),
                                        b.why()))
                        .sorted(AlgorithmBound.WIDEST_FIRST)
                        .toList(),
                assumptions,
                spread,
                plateauBytes,
                plateau);
    }

    /** Bus bandwidth of an algorithm with its best protocol; 0 if it has no way. */
    static double reached(List<Timed> ways, Algorithm a, double busFactor) {
        double reached = 0;
        for (Timed w : ways) {
            if (w.way.algorithm == a) {
                reached = Math.max(reached, w.share * w.way.algbwGBps * busFactor);
            }
        }
        return reached;
    }

    /**
     * Predicts a time for each algorithm and protocol. Their order is that of NCCL's own model,
     * which leaves out launch and start, so a later one may have a shorter time.
     *
     * @param bytes size, see {@link Prediction}
     * @return the predictions, NCCL's choice first
     */
    public List<Prediction> predict(long bytes) {
        check(bytes);
        return timed.stream()
                .sorted(Comparator.comparingDouble(w -> time(w.way, bytes, 1)))
                .map(w -> prediction(w, bytes))
                .toList();
    }

    /**
     * The algorithm and protocol that NCCL chooses: the fastest by its own model.
     *
     * @param bytes size, see {@link Prediction}
     * @return the prediction
     */
    public Prediction choose(long bytes) {
        check(bytes);
        return prediction(timed.get(best(bytes)), bytes);
    }

    /**
     * Sizes at which the fastest choice changes, to the byte.
     *
     * @param min smallest size, at least 1
     * @param max largest size
     * @return ranges of sizes, ascending, without gaps
     */
    public List<Crossover> crossovers(long min, long max) {
        check(min);
        if (max < min) {
            throw new IllegalArgumentException(
                    "largest size is " + max + ", expected at least the smallest, " + min);
        }
        List<Crossover> ranges = new ArrayList<>();
        long start = min;
        int now = best(min);
        // Between powers of two the model is one line per way, so that no way is the best twice.
        long high = 0;
        for (long low = min; high < max; low = high + 1) {
            high = Math.min(max, Long.highestOneBit(low) * 2 - 1);
            if (low < plateauBytes && high >= plateauBytes) {
                high = Math.max(low, (long) Math.ceil(plateauBytes) - 1);
            }
            for (long at = low; ; ) {
                int next = best(at);
                if (next != now) {
                    ranges.add(range(start, at - 1, now));
                    start = at;
                    now = next;
                }
                if (best(high) == now) {
                    break;
                }
                at = end(at, high, now) + 1;
            }
        }
        ranges.add(range(start, max, now));
        return ranges;
    }

    /** The last size up to {@code high} for which {@code way} is the best, as it is at low. */
    private long end(long low, long high, int way) {
        long good = low;
        long bad = high;
        while (bad - good > 1) {
            long middle = good + (bad - good) / 2;
            if (best(middle) == way) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        return good;
    }

    private Crossover range(long from, long to, int way) {
        return new Crossover(from, to, ways.get(way).algorithm, ways.get(way).protocol);
    }

    private int best(long bytes) {
        int best = 0;
        double least = Double.POSITIVE_INFINITY;
        for (int i = 0; i < ways.size(); i++) {
            double time = time(ways.get(i), bytes, 1);
            if (time < least) {
                least = time;
                best = i;
            }
        }
        return best;
    }

    /** Microseconds, as NCCL reckons, with a share of the bandwidth. */
    private double time(Way w, long bytes, double share) {
        double bandwidth = w.algbwGBps * share;
        double latency = w.latencyUs;
        if (op == Operation.ALL_REDUCE) {
            if (w.algorithm == Algorithm.TREE && bytes >= 64) {
                double[] factors = parameters.treeSize[w.protocol.ordinal()];
                int octave = 63 - Long.numberOfLeadingZeros(bytes >> 6);
                bandwidth *= octave < factors.length ? factors[octave] : 1;
            }
            if (w.algorithm == Algorithm.RING
                    && w.protocol == Protocol.SIMPLE
                    && bytes >= plateauBytes) {
                latency *= plateau;
            }
        }
        return latency + bytes / (1000 * bandwidth);
    }

    private Prediction prediction(Timed timed, long bytes) {
        Way w = timed.way;
        double time = time(w, bytes, timed.share) + timed.start.us(bytes);
        double algbw = bytes / (1000 * time);
        return new Prediction(
                op,
                bytes,
                w.algorithm,
                w.protocol,
                time,
                algbw,
                algbw * op.busFactor(ranks),
                spread[bytes < 1 << 20 ? 0 : bytes < 8 << 20 ? 1 : bytes < 256 << 20 ? 2 : 3]);
    }

    private static void check(long bytes) {
        if (bytes < 1) {
            throw new IllegalArgumentException("size is " + bytes + ", expected at least 1");
        }
    }

    @Override
    public String toString() {
        return op.command() + " on " + ranks + " ranks: " + ways;
    }
}

package io.jccl.parallel;

import io.jccl.parallel.RouterOptions.ExpertChoice;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;

/**
 * A mixture of experts on one rank, plainly in float64 from the formulas of the papers: each token
 * by itself, no rows sorted, nothing sent. Expert e makes {@code s_e sin(x)} of each feature x.
 */
final class ExpertReference {
    /** A token that an expert takes. */
    record Pick(int token, int expert) {}

    private ExpertReference() {}

    static double[] softmax(double[] x) {
        double most = IntStream.range(0, x.length).mapToDouble(e -> x[e]).max().orElseThrow();
        double[] p = new double[x.length];
        double sum = 0;
        for (int e = 0; e < x.length; e++) {
            p[e] = Math.exp(x[e] - most);
            sum += p[e];
        }
        for (int e = 0; e < x.length; e++) {
            p[e] /= sum;
        }
        return p;
    }

    static double scale(int expert) {
        return 0.5 + (expert * 7 % 5) * 0.4 * (expert % 2 == 0 ? 1 : -1);
    }

    /** What each token wants, best first: the list that rerouting changes. */
    static List<List<Integer>> wanted(double[][] p, int count) {
        List<List<Integer>> all = new ArrayList<>();
        for (double[] of : p) {
            all.add(new ArrayList<>(ranking(of).subList(0, count)));
        }
        return all;
    }

    private static List<Integer> ranking(double[] p) {
        return IntStream.range(0, p.length)
                .boxed()
                .sorted(Comparator.comparingDouble((Integer e) -> -p[e]).thenComparing(e -> e))
                .toList();
    }

    /** All that is taken, each expert's in the order of its slots; rerouting changes wanted. */
    static List<Pick> picks(double[][] p, RouterOptions o, List<List<Integer>> wanted) {
        int tokens = p.length;
        List<Pick> picks = new ArrayList<>();
        int experts = o.experts();
        double even = (double) tokens / experts * o.capacityFactor();
        if (o.choice() instanceof ExpertChoice) {
            int room = room(even, tokens, o);
            for (int e = 0; e < experts; e++) {
                int expert = e;
                IntStream.range(0, tokens)
                        .boxed()
                        .sorted(
                                Comparator.comparingDouble((Integer t) -> -p[t][expert])
                                        .thenComparing(t -> t))
                        .limit(room)
                        .forEach(t -> picks.add(new Pick(t, expert)));
            }
            return picks;
        }
        int count = ((TokenChoice) o.choice()).count();
        // A capacity that adapts drops nothing, or what its bound does.
        boolean all = o.overflow() == Overflow.NONE || o.capacityFactor() == 0;
        int room = all ? tokens : room(Math.abs(even) * count, tokens, o);
        List<Integer> order = new ArrayList<>(IntStream.range(0, tokens).boxed().toList());
        if (o.batchPriority()) {
            order.sort(
                    Comparator.comparingDouble((Integer t) -> -p[t][ranking(p[t]).getFirst()])
                            .thenComparing(t -> t));
        }
        int[] load = new int[experts];
        for (int j = 0; j < count; j++) {
            for (int t : order) {
                int e = wanted.get(t).get(j);
                if (load[e] == room && o.overflow() == Overflow.NEXT_BEST) {
                    for (int other : ranking(p[t])) {
                        if (load[other] < room && !wanted.get(t).contains(other)) {
                            wanted.get(t).set(j, other);
                            e = other;
                            break;
                        }
                    }
                }
                if (load[e] < room && p[t][e] > 0) {
                    load[e]++;
                    picks.add(new Pick(t, e));
                }
            }
        }
        picks.sort(Comparator.comparingInt(Pick::expert)); // stable: slots stay in order
        return picks;
    }

    private static int room(double slots, int tokens, RouterOptions o) {
        double least = o.minCapacity();
        return (int) Math.min(tokens, Math.max(least, Math.ceil(slots - 1e-9 * slots)));
    }

    static double weight(double[] p, Pick pick, RouterOptions o, List<List<Integer>> wanted) {
        if (o.choice() instanceof TokenChoice c && c.normalised()) {
            double sum = wanted.get(pick.token).stream().mapToDouble(e -> p[e]).sum();
            // As documented: gates are float32, and below that have no quotient.
            return sum < Float.MIN_NORMAL ? 0 : p[pick.expert] / sum;
        }
        return p[pick.expert];
    }

    /** The layer's results: tokens x features. */
    static double[][] forward(
            double[][] logits,
            double[][] x,
            RouterOptions o,
            List<Pick> picks,
            List<List<Integer>> wanted) {
        double[][] y = new double[x.length][x.length == 0 ? 0 : x[0].length];
        for (Pick pick : picks) {
            add(logits, x, o, pick, wanted, y[pick.token]);
        }
        return y;
    }

    /** One token's result. */
    static double[] forward(
            double[][] logits,
            double[][] x,
            RouterOptions o,
            List<Pick> picks,
            List<List<Integer>> wanted,
            int token) {
        double[] y = new double[x[token].length];
        for (Pick pick : picks) {
            if (pick.token == token) {
                add(logits, x, o, pick, wanted, y);
            }
        }
        return y;
    }

    private static void add(
            double[][] logits,
            double[][] x,
            RouterOptions o,
            Pick pick,
            List<List<Integer>> wanted,
            double[] y) {
        double w = weight(softmax(logits[pick.token]), pick, o, wanted);
        for (int f = 0; f < y.length; f++) {
            y[f] += w * scale(pick.expert) * Math.sin(x[pick.token][f]);
        }
    }

    /** Switch, equation 4, with the shares f as given. */
    static double balanceLoss(double[][] logits, double[] shares) {
        int experts = shares.length;
        double sum = 0;
        for (int e = 0; e < experts; e++) {
            double mean = 0;
            for (double[] x : logits) {
                mean += softmax(x)[e] / logits.length;
            }
            sum += shares[e] * mean;
        }
        return experts * sum;
    }

    /** The share of tokens whose largest gate is an expert's. */
    static double[] shares(double[][] p, int experts) {
        double[] f = new double[experts];
        for (double[] of : p) {
            f[ranking(of).getFirst()] += 1.0 / p.length;
        }
        return f;
    }

    /** ST-MoE, equation 5. */
    static double zLoss(double[][] logits) {
        double sum = 0;
        for (double[] x : logits) {
            double s = 0;
            for (double v : x) {
                s += Math.exp(v);
            }
            sum += Math.log(s) * Math.log(s) / logits.length;
        }
        return sum;
    }
}

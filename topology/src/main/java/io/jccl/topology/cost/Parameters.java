package io.jccl.topology.cost;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

/** The numbers of a model, read from a resource and checked. Immutable. */
final class Parameters {
    /** Generations of GPUs, as keys name them, and the compute capability each starts at. */
    enum Generation {
        VOLTA(0),
        AMPERE(80),
        HOPPER(90),
        BLACKWELL(100);

        private final int sm;

        Generation(int sm) {
            this.sm = sm;
        }

        static Generation of(int sm) {
            Generation found = VOLTA;
            for (Generation g : values()) {
                found = sm >= g.sm ? g : found;
            }
            return found;
        }
    }

    /** Where a step goes. */
    enum Way {
        NVLINK,
        PCIE,
        NET
    }

    /** Kinds of machines whose predictions are equally good. */
    enum Spread {
        SWITCH,
        NVLINK,
        NET,
        PCIE
    }

    /** Most that LL reaches, and most a channel carries; by generation, and 1, 2, more machines. */
    enum Limit {
        LL("ll.max"),
        RING_LL128("ring.ll128.max"),
        TREE_LL128("tree.ll128.max"),
        TREE("tree.max"),
        NVLS_TREE("nvlstree.max");

        private final String key;

        Limit(String key) {
            this.key = key;
        }
    }

    final double[][] base;
    final double[][][] step;
    final double[][][] limit;
    final double[][] treeSize;
    final double netOverhead;
    final double peerLatency;
    final double[] patLatency;
    final double[] ringPlateau;
    final double ringLl;
    final double ringLl128;
    final double treeShare;
    final double treeLl;
    final double[] treeLl128;
    final double patShare;
    final double ringStartup;
    final double[] nvlsShare;
    final double nvlsHeads;
    final double nvlsRack;
    final double rackNetwork;
    final double[] rackStart;
    final double nicShare;
    final double bridgeOverhead;
    final double launch;
    final double[][] ringFill;
    final double[][] spread;
    final double[] nvlsChannels;
    final double[] nvlsChunk;
    final double[] nvlsRounds;

    private Parameters(Reader in) {
        int algorithms = Algorithm.values().length;
        int ways = Way.values().length;
        int protocols = Protocol.values().length;
        base = new double[algorithms][];
        step = new double[ways][algorithms][];
        for (Algorithm a : Algorithm.values()) {
            base[a.ordinal()] = in.numbers("base." + a, protocols);
            for (Way w : Way.values()) {
                step[w.ordinal()][a.ordinal()] = in.numbers(lower(w) + "." + a, protocols);
            }
        }
        limit = new double[Limit.values().length][Generation.values().length][];
        for (Limit l : Limit.values()) {
            for (Generation g : Generation.values()) {
                limit[l.ordinal()][g.ordinal()] = in.numbers(l.key + "." + lower(g), 3);
            }
        }
        treeSize = new double[protocols][];
        for (Protocol p : Protocol.values()) {
            treeSize[p.ordinal()] = in.numbers("tree.size." + p, 24);
        }
        netOverhead = in.number("net.overhead");
        peerLatency = in.number("peer.latency");
        patLatency = in.numbers("pat.latency", 2);
        ringPlateau = in.numbers("ring.plateau", 2);
        ringLl = in.number("ring.ll");
        ringLl128 = in.number("ring.ll128");
        treeShare = in.number("tree.share");
        treeLl = in.number("tree.ll");
        treeLl128 = in.numbers("tree.ll128", 2);
        patShare = in.number("pat.share");
        ringStartup = in.number("ring.startup");
        nvlsShare = in.numbers("nvls.share", 2);
        nvlsHeads = in.number("nvls.heads");
        nvlsRack = in.number("nvls.rack");
        rackNetwork = in.number("rack.network");
        rackStart = in.numbers("rack.start", 2);
        nicShare = in.number("nic.share");
        bridgeOverhead = in.number("bridge.overhead");
        launch = in.number("launch");
        ringFill = new double[protocols][];
        for (Protocol p : Protocol.values()) {
            ringFill[p.ordinal()] = in.numbers("ring.fill." + p, 2);
        }
        spread = new double[Spread.values().length][];
        for (Spread s : Spread.values()) {
            spread[s.ordinal()] = in.numbers("spread." + lower(s), 4);
        }
        nvlsChannels = in.numbers("nvls.channels", 2);
        nvlsChunk = in.numbers("nvls.chunk", 4);
        nvlsRounds = in.numbers("nvls.rounds", 3);
        in.done();
    }

    static Parameters load(String resource) {
        Properties p = new Properties();
        try (InputStream in = Parameters.class.getResourceAsStream(resource)) {
            if (in == null) {
                throw new IllegalStateException("no resource " + resource);
            }
            p.load(in);
        } catch (IOException e) {
            throw new UncheckedIOException("can't read resource " + resource, e);
        }
        return of(resource, p);
    }

    static Parameters of(String name, Properties p) {
        return new Parameters(new Reader(name, p));
    }

    double limit(Limit l, Generation g, int machines) {
        return limit[l.ordinal()][g.ordinal()][Math.min(machines, 3) - 1];
    }

    private static String lower(Enum<?> e) {
        return e.name().toLowerCase(Locale.ROOT);
    }

    /** Returns each key once, so that the remaining keys are the unknown ones. */
    private static final class Reader {
        private final String name;
        private final Map<String, String> left = new HashMap<>();

        Reader(String name, Properties p) {
            this.name = name;
            p.stringPropertyNames().forEach(k -> left.put(k, p.getProperty(k)));
        }

        double number(String key) {
            return numbers(key, 1)[0];
        }

        double[] numbers(String key, int count) {
            String text = left.remove(key);
            if (text == null) {
                throw new IllegalArgumentException(name + " has no " + key + ": add it");
            }
            String[] words = text.strip().split("\\s+", -1);
            if (words.length != count) {
                throw new IllegalArgumentException(
                        name + ": " + key + " is " + text + ", expected " + count + " numbers");
            }
            double[] numbers = new double[count];
            for (int i = 0; i < count; i++) {
                try {
                    numbers[i] = Double.parseDouble(words[i]);
                } catch (NumberFormatException e) {
                    numbers[i] = Double.NaN;
                }
                if (!(numbers[i] >= 0) || Double.isInfinite(numbers[i])) {
                    throw new IllegalArgumentException(
                            "%s: %s has %s, expected a finite number, at least 0"
                                    .formatted(name, key, words[i]));
                }
            }
            return numbers;
        }

        void done() {
            if (!left.isEmpty()) {
                throw new IllegalArgumentException(
                        "%s has keys that are not known: %s: remove them"
                                .formatted(name, new TreeSet<>(left.keySet())));
            }
        }
    }
}

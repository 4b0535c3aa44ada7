package io.jccl.contract;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * One thing to try on all ranks. Its text form goes to other processes and into failure messages;
 * everything a rank does follows from it.
 *
 * @param collective what to call
 * @param type element type
 * @param op how to reduce, where the collective reduces
 * @param count elements in a block; the v-variants scatter around it
 * @param ranks number of ranks
 * @param root the root, where there is one
 * @param inPlace whether send and receive memory are the same
 * @param algorithm setting of the communicator
 * @param data what kind of values
 * @param memory what kind of memory
 * @param async whether the stream has a thread of its own
 * @param seed of the values, counts and factors
 */
public record Case(
        Collective collective,
        DataType type,
        ReduceOp.Kind op,
        long count,
        int ranks,
        int root,
        boolean inPlace,
        Algorithm algorithm,
        Data data,
        Memory memory,
        boolean async,
        long seed) {

    /** What kind of values a reduction gets. Operations that only move data get random bits. */
    public enum Data {
        /** Every algorithm must give the same bits: no intermediate result is rounded. */
        EXACT,
        /** Results are rounded; bit-exact for DIRECT, within a bound for the others. */
        RANDOM,
        /** With NaN, infinities, both zeros, largest and smallest values. */
        SPECIAL,
        /**
         * As NCCL reduces {@link #RANDOM}: partial results are rounded to the type, and an average
         * is the sum of elements times a rounded 1 / ranks.
         */
        ROUNDED,
        /** As NCCL compares {@link #SPECIAL}: a number is less, and more, than NaN. */
        QUIET;

        /** Those that cases are drawn from, for any engine. */
        static final Data[] DRAWN = {EXACT, RANDOM, SPECIAL};
    }

    /** Where the elements lie. */
    public enum Memory {
        /** A whole buffer of the device. */
        LIBRARY,
        /** A slice of a buffer of the device that starts at an odd element. */
        LIBRARY_SLICE,
        /** Foreign native memory. */
        OFF_HEAP,
        /** Foreign native memory at an odd address. */
        UNALIGNED,
        /** Foreign native memory given as an address. */
        ADDRESS,
        /** A byte array, from an odd index. */
        HEAP,
        /** An array of the fitting primitive type. */
        HEAP_TYPED,
        /** Another kind on each rank, and for send and receive. */
        MIXED
    }

    /**
     * The cases that NCCL runs, with what it makes of them (src/device/reduce_kernel.h and
     * hostToDevRedOp in src/enqueue.cc of 2.30.7). For one rank it lacks a kernel that multiplies
     * float8.
     */
    public static List<Case> onNccl(List<Case> cases) {
        return cases.stream()
                .filter(c ->
                        (c.collective == Collective.SPLIT ? c.ranks / 2 : c.ranks) > 1
                                || c.op != ReduceOp.Kind.PRE_MUL_SUM
                                || !c.type.isNarrowFloat()
                                || c.type.size() > 1)
                .map(c -> c.withOwnAlgorithm(c.onNccl()))
                .distinct()
                .toList();
    }

    private Data onNccl() {
        if (type.isInteger()) {
            return data;
        }
        return switch (op) {
            case MIN, MAX -> data == Data.SPECIAL ? Data.QUIET : data;
            case AVG -> Data.ROUNDED;
            case SUM, PROD, PRE_MUL_SUM -> type.isNarrowFloat() ? Data.ROUNDED : data;
        };
    }

    /**
     * The same case for a native library, which chooses its algorithms itself and takes the factor
     * of a pre-multiplied sum in the element type: there the factors are such that no type rounds
     * them.
     */
    public Case withOwnAlgorithm() {
        return withOwnAlgorithm(
                type.isNarrowFloat() && op == ReduceOp.Kind.PRE_MUL_SUM ? Data.EXACT : data);
    }

    private Case withOwnAlgorithm(Data values) {
        return new Case(
                collective,
                type,
                op,
                count,
                ranks,
                root,
                inPlace,
                Algorithm.AUTO,
                values,
                memory,
                async,
                seed);
    }

    /** The same case for another collective or world. */
    Case with(Collective other, int size) {
        return new Case(
                other,
                type,
                op,
                count,
                size,
                root % size,
                inPlace && other.canBeInPlace(),
                algorithm,
                data,
                memory,
                async,
                seed);
    }

    @Override
    public String toString() {
        return collective.label()
                + (" type=" + type.label())
                + (" op=" + ReduceOp.label(op))
                + (" count=" + count)
                + (" ranks=" + ranks)
                + (" root=" + root)
                + (" inPlace=" + inPlace)
                + (" algorithm=" + name(algorithm))
                + (" data=" + name(data))
                + (" memory=" + name(memory))
                + (" async=" + async)
                + (" seed=" + seed);
    }

    private static String name(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    /**
     * Reads the text form.
     *
     * @param text what toString wrote
     * @return the case
     */
    public static Case parse(String text) {
        String[] words = text.strip().split("\\s+", -1);
        Map<String, String> values = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int eq = words[i].indexOf('=');
            values.put(words[i].substring(0, eq), words[i].substring(eq + 1));
        }
        Reader in = new Reader(text, values);
        return new Case(
                Collective.ofLabel(words[0]),
                DataType.ofLabel(in.get("type")),
                opOf(in.get("op")),
                Long.parseLong(in.get("count")),
                Integer.parseInt(in.get("ranks")),
                Integer.parseInt(in.get("root")),
                Boolean.parseBoolean(in.get("inPlace")),
                Algorithm.ofName(in.get("algorithm")),
                Data.valueOf(in.get("data").toUpperCase(Locale.ROOT)),
                Memory.valueOf(in.get("memory").toUpperCase(Locale.ROOT)),
                Boolean.parseBoolean(in.get("async")),
                Long.parseLong(in.get("seed")));
    }

    private record Reader(String text, Map<String, String> values) {
        String get(String key) {
            String value = values.get(key);
            if (value == null) {
                throw new IllegalArgumentException("no " + key + " in case '" + text + "'");
            }
            return value;
        }
    }

    private static ReduceOp.Kind opOf(String label) {
        for (ReduceOp.Kind k : ReduceOp.Kind.values()) {
            if (ReduceOp.label(k).equals(label)) {
                return k;
            }
        }
        throw new IllegalArgumentException("operation '" + label + "' is unknown");
    }
}

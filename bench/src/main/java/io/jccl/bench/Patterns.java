package io.jccl.bench;

import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import io.jccl.internal.SplitMix;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.DoubleBinaryOperator;
import java.util.function.LongBinaryOperator;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Inputs and expected results of the correctness check.
 *
 * <p>Inputs are chosen so that every correct result is exact in every type: no partial sum or
 * product is rounded, in any order, so results are compared bit by bit. For sums, inputs are
 * integers whose absolute values add up to at most the largest integer up to which the type is
 * exact (8 in float8 e5m2); with more ranks than that, most contribute 0 to a given element.
 * Products are of powers of two. Averages are of pairs symmetric around the result.
 *
 * <p>Elements repeat with a period that is prime, so it is never aligned with blocks and chunks,
 * whose lengths are multiples of powers of two. Filling and comparing is as fast as copying memory.
 *
 * <p><b>Threads:</b> thread-safe; ranks that are threads share the tables.
 */
public final class Patterns {
    /** Elements before the values repeat. */
    static final int PERIOD = 4093;

    /** Used instead of a rank: the reduction over all ranks. */
    static final int REDUCED = -1;

    private record Key(DataType type, ReduceOp.@Nullable Kind op, long seed, int rank) {}

    private final int ranks;
    private final ConcurrentHashMap<Key, MemorySegment> tables = new ConcurrentHashMap<>();

    public Patterns(int ranks) {
        this.ranks = ranks;
    }

    /**
     * One period of elements.
     *
     * @param type their type
     * @param op the reduction, or null if data is only moved
     * @param seed selects the values
     * @param rank the rank, or {@link #REDUCED}
     * @return {@link #PERIOD} elements, read-only
     */
    MemorySegment table(DataType type, ReduceOp.@Nullable Kind op, long seed, int rank) {
        return tables.computeIfAbsent(
                new Key(type, op, seed, rank),
                key -> MemorySegment.ofArray(bytes(type, op, seed, rank, ranks)));
    }

    /**
     * Drops the tables of other types and operations.
     *
     * @param type type that stays
     * @param op operation that stays
     */
    void retain(DataType type, ReduceOp.@Nullable Kind op) {
        tables.keySet().removeIf(key -> key.type != type || key.op != op);
    }

    /**
     * The byte that fills result buffers before a check: NaN in floating-point types, the largest
     * value or a very negative one in integers. No correct result contains it.
     *
     * @param type element type
     */
    static byte poison(DataType type) {
        return (byte) (type.isInteger() && !type.isUnsigned() ? 0x80 : 0xff);
    }

    /** The factor of a rank in a pre-multiplied sum. */
    static int factor(int rank) {
        return 1 + rank % 3;
    }

    /**
     * The maximum difference of a result. NCCL multiplies by 1 / ranks, rounded to the type, before
     * it adds (hostToDevRedOp in src/enqueue.cc), so unless the number of ranks is a power of two,
     * averages have one rounding per rank, and two more, each of at most half a unit in the last
     * place of the largest input.
     *
     * @return 0 if bits must be equal
     */
    static double tolerance(DataType type, ReduceOp.@Nullable Kind op, int ranks) {
        boolean rounds =
                op == ReduceOp.Kind.AVG && !type.isInteger() && Integer.bitCount(ranks) > 1;
        double largest = exact(type) < 100 ? 2 + 2 : 64 + 63;
        return rounds ? (ranks + 2) * largest / exact(type) : 0;
    }

    static byte[] bytes(DataType type, ReduceOp.@Nullable Kind op, long seed, int rank, int ranks) {
        byte[] bytes = new byte[PERIOD * type.size()];
        ByteBuffer to = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
        for (int i = 0; i < PERIOD; i++) {
            if (op == null) {
                // Any bits except those of the poison, which has the top bit set.
                Encoding.putBits(to, i, type, hash(seed, rank, i) >>> (65 - 8 * type.size()));
            } else if (type.isInteger()) {
                Encoding.putLong(
                        to,
                        i,
                        type,
                        rank == REDUCED
                                ? reducedLong(type, op, seed, i, ranks)
                                : whole(type, op, seed, rank, i, ranks));
            } else {
                Encoding.putDouble(
                        to,
                        i,
                        type,
                        rank == REDUCED
                                ? reducedDouble(type, op, seed, i, ranks)
                                : real(type, op, seed, rank, i, ranks));
            }
        }
        return bytes;
    }

    /** Largest L such that the type represents every integer from 0 to L and L is not poison. */
    private static long exact(DataType type) {
        return switch (type) {
            case INT8 -> 120;
            case UINT8 -> 240;
            case INT32 -> 1L << 30;
            case UINT32 -> 1L << 31;
            case INT64, UINT64 -> 1L << 60;
            case FLOAT64 -> 1L << 53;
            case FLOAT32 -> 1L << 24;
            case FLOAT16 -> 1L << 11;
            case BFLOAT16 -> 1L << 8;
            case FLOAT8E4M3 -> 1L << 4;
            case FLOAT8E5M2 -> 1L << 3;
        };
    }

    /** An input of an integer type. */
    static long whole(DataType type, ReduceOp.Kind op, long seed, int rank, int index, int ranks) {
        long h = hash(seed, rank, index);
        long limit = exact(type);
        boolean signed = !type.isUnsigned();
        return switch (op) {
            case SUM, AVG -> shared(h, limit, signed, rank, index, ranks);
            case PRE_MUL_SUM -> shared(h, limit / 3, signed, rank, index, ranks);
            // 3 to the 4th is 81, so four ranks may contribute more than 1 or -1.
            case PROD ->
                    (active(rank, index, ranks, 4) ? 1 + (h >>> 8) % 3 : 1)
                            * (signed && h < 0 ? -1 : 1);
            case MIN, MAX -> between(h, limit, signed);
        };
    }

    /** An input of a floating-point type. */
    static double real(DataType type, ReduceOp.Kind op, long seed, int rank, int index, int ranks) {
        long h = hash(seed, rank, index);
        return switch (op) {
            // Six factors of 1/2 or 2 stay within the exponents of float8 e4m3.
            case PROD ->
                    (active(rank, index, ranks, 6) ? Math.scalb(1.0, (int) ((h >>> 8) % 3) - 1) : 1)
                            * (h < 0 ? -1 : 1);
            case AVG -> {
                // Ranks 2k and 2k + 1 are symmetric around the average.
                long spread = exact(type) < 100 ? 3 : 64;
                long pair = hash(seed, rank / 2, ~index) >>> 1;
                boolean alone = rank % 2 == 0 && rank == ranks - 1;
                long off = alone ? 0 : pair % spread;
                yield average(type, seed, index) + (rank % 2 == 0 ? off : -off);
            }
            default -> whole(type, op, seed, rank, index, ranks);
        };
    }

    /** A power of two, so that it is exact whether an engine divides by n or multiplies by 1/n. */
    private static double average(DataType type, long seed, int index) {
        long h = hash(seed, REDUCED, index);
        int exponent = (int) ((h >>> 8) % (exact(type) < 100 ? 2 : 7));
        return Math.scalb(h < 0 ? -1.0 : 1.0, exponent);
    }

    private static long reducedLong(
            DataType type, ReduceOp.Kind op, long seed, int index, int ranks) {
        LongBinaryOperator combined =
                switch (op) {
                    case SUM, AVG, PRE_MUL_SUM -> Long::sum;
                    case PROD -> (a, b) -> a * b;
                    case MIN -> Math::min;
                    case MAX -> Math::max;
                };
        long result =
                IntStream.range(0, ranks)
                        .mapToLong(r -> scale(op, r) * whole(type, op, seed, r, index, ranks))
                        .reduce(combined)
                        .orElseThrow();
        return op == ReduceOp.Kind.AVG ? result / ranks : result;
    }

    private static double reducedDouble(
            DataType type, ReduceOp.Kind op, long seed, int index, int ranks) {
        DoubleBinaryOperator combined =
                switch (op) {
                    case SUM, AVG, PRE_MUL_SUM -> Double::sum;
                    case PROD -> (a, b) -> a * b;
                    case MIN -> Math::min;
                    case MAX -> Math::max;
                };
        double result =
                IntStream.range(0, ranks)
                        .mapToDouble(r -> scale(op, r) * real(type, op, seed, r, index, ranks))
                        .reduce(combined)
                        .orElseThrow();
        return op == ReduceOp.Kind.AVG ? result / ranks : result;
    }

    private static int scale(ReduceOp.Kind op, int rank) {
        return op == ReduceOp.Kind.PRE_MUL_SUM ? factor(rank) : 1;
    }

    /** An integer such that the sum over all ranks does not exceed the limit. */
    private static long shared(long h, long limit, boolean signed, int rank, int index, int ranks) {
        long each = limit / ranks;
        if (each > 0) {
            return between(h, each, signed);
        }
        return active(rank, index, ranks, (int) limit) ? between(h, 1, signed) : 0;
    }

    /** Whether a rank is among the few that contribute to an element; all do if there are few. */
    private static boolean active(int rank, int index, int ranks, int few) {
        int every = (ranks + few - 1) / few;
        return (rank + index) % every == 0;
    }

    private static long between(long h, long limit, boolean signed) {
        long positive = h >>> 1;
        return signed ? positive % (2 * limit + 1) - limit : positive % (limit + 1);
    }

    /** A cheap hash of the three. */
    private static long hash(long seed, int rank, int index) {
        return SplitMix.mix(
                seed * SplitMix.GAMMA
                        + rank * 0xd1b54a32d192ed03L
                        + index * 0x8cb92ba72f3d8dd7L
                        + 0x2545f4914f6cdd1dL);
    }
}

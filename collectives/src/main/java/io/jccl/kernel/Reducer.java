package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import io.jccl.device.host.Codec;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Reduces ranges of elements from several sources into several targets, block by block through
 * memory that stays in the first-level cache.
 *
 * <p>Types that are reduced without conversion are called wide; narrow floats are widened to
 * float32 and rounded once at the end. A reducer belongs to one communicator and thus to one
 * thread.
 */
public final class Reducer {
    /** Elements in a block: 8 KiB of float32, so that three blocks fit a 32 KiB cache. */
    private static final int BLOCK = 2048;

    /** Elements in one call if nothing needs to stay in the cache; counted by an int. */
    private static final int PAIR_BLOCK = 1 << 20;

    private final int ranks;

    // The reduction; set by begin and add*, all offsets in bytes.
    private final MemorySegment[] sources;
    private final long[] sourceAt;
    private final long[] factors;
    private int sourceCount;
    private final MemorySegment[] targets;
    private final long[] targetAt;
    private int targetCount;
    private DataType type = DataType.INT8;
    private ReduceOp.Kind kind = ReduceOp.Kind.SUM;

    // Scratch memory, allocated when first needed.
    private @Nullable MemorySegment acc;
    private @Nullable MemorySegment scaled;
    private @Nullable Narrow narrow;

    /** Scratch memory for narrow floats: the compiler vectorises loops over arrays. */
    private static final class Narrow {
        final float[] acc = new float[BLOCK];
        final float[] next = new float[BLOCK];
        final short[] shorts = new short[BLOCK];
        final byte[] bytes = new byte[BLOCK];
    }

    /** For a number of ranks, by which an average divides. */
    public Reducer(int ranks) {
        this.ranks = ranks;
        sources = new MemorySegment[ranks];
        sourceAt = new long[ranks];
        factors = new long[ranks];
        targets = new MemorySegment[ranks];
        targetAt = new long[ranks];
    }

    /** Starts a new reduction. */
    public Reducer begin(DataType type, ReduceOp.Kind kind) {
        this.type = type;
        this.kind = kind;
        sourceCount = 0;
        targetCount = 0;
        return this;
    }

    /** Forgets the memory, which its owner may free. */
    public void end() {
        Arrays.fill(sources, 0, sourceCount, MemorySegment.NULL);
        Arrays.fill(targets, 0, targetCount, MemorySegment.NULL);
    }

    /** Adds a source; the factor (bits) applies to pre-multiplied sums only. */
    public void addSource(MemorySegment s, long at, long factor) {
        sources[sourceCount] = s;
        sourceAt[sourceCount] = at;
        factors[sourceCount++] = factor;
    }

    /** Adds a target; it may be the same memory as a source. */
    public void addTarget(MemorySegment s, long at) {
        targets[targetCount] = s;
        targetAt[targetCount++] = at;
    }

    /** The type of partial results. */
    public static DataType wide(DataType type) {
        return type.isNarrowFloat() ? DataType.FLOAT32 : type;
    }

    /**
     * Reduces a range of elements from all sources and writes the finished result to all targets.
     */
    public void run(long from, long to) {
        Kernel kernel = Kernel.of(wide(type), combining(kind));
        boolean plainPair = sourceCount == 2 && targetCount == 2 && !type.isNarrowFloat();
        if (plainPair && kind != ReduceOp.Kind.PRE_MUL_SUM && kind != ReduceOp.Kind.AVG) {
            pair(kernel, from, to);
            return;
        }
        for (long at = from; at < to; at += BLOCK) {
            int n = (int) Math.min(BLOCK, to - at);
            if (type.isNarrowFloat()) {
                narrowBlock(at, n);
            } else {
                wideBlock(kernel, at * type.size(), n);
            }
        }
    }

    /** The case of two ranks that both get the result, without scaling or rounding. */
    private void pair(Kernel kernel, long from, long to) {
        for (long at = from; at < to; at += PAIR_BLOCK) {
            long x = at * type.size();
            kernel.combine2(
                    sources[0],
                    sourceAt[0] + x,
                    sources[1],
                    sourceAt[1] + x,
                    targets[0],
                    targetAt[0] + x,
                    targets[1],
                    targetAt[1] + x,
                    (int) Math.min(PAIR_BLOCK, to - at));
        }
    }

    private void wideBlock(Kernel kernel, long x, int n) {
        boolean scales = kind == ReduceOp.Kind.PRE_MUL_SUM;
        boolean divides = kind == ReduceOp.Kind.AVG && ranks > 1;
        MemorySegment out = targets[0];
        long outAt = targetAt[0] + x;
        long bytes = (long) n * type.size();
        if (sourceCount == 1 && !scales) {
            copy(sources[0], sourceAt[0] + x, out, outAt, bytes);
        } else {
            // Targets may be sources, so the first write to one comes after the last read.
            MemorySegment left = sources[0];
            long leftAt = sourceAt[0] + x;
            if (scales) {
                boolean last = sourceCount == 1;
                MemorySegment to = last ? out : scratch();
                long toAt = last ? outAt : 0;
                Kernel.of(type, Kernel.Op.MUL).apply(left, leftAt, factors[0], to, toAt, n);
                left = to;
                leftAt = toAt;
            }
            for (int k = 1; k < sourceCount; k++) {
                MemorySegment right = sources[k];
                long rightAt = sourceAt[k] + x;
                if (scales) {
                    Kernel.of(type, Kernel.Op.MUL)
                            .apply(right, rightAt, factors[k], scaledScratch(), 0, n);
                    right = scaledScratch();
                    rightAt = 0;
                }
                boolean last = k == sourceCount - 1 && !divides;
                MemorySegment to = last ? out : scratch();
                long toAt = last ? outAt : 0;
                kernel.combine(left, leftAt, right, rightAt, to, toAt, n);
                left = to;
                leftAt = toAt;
            }
            if (divides) {
                divide(left, leftAt, out, outAt, n);
            }
        }
        for (int t = 1; t < targetCount; t++) {
            copy(out, outAt, targets[t], targetAt[t] + x, bytes);
        }
    }

    private void divide(MemorySegment a, long ao, MemorySegment o, long oo, int n) {
        long bits =
                switch (type) {
                    case FLOAT32 -> Float.floatToRawIntBits(ranks);
                    case FLOAT64 -> Double.doubleToRawLongBits(ranks);
                    default -> ranks;
                };
        Kernel.of(type, Kernel.Op.DIV).apply(a, ao, bits, o, oo, n);
    }

    private void narrowBlock(long at, int n) {
        Narrow s = narrowScratch();
        for (int k = 0; k < sourceCount; k++) {
            float[] into = k == 0 ? s.acc : s.next;
            widen(s, sources[k], sourceAt[k] + at * type.size(), n, into);
            if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
                multiply(into, Float.intBitsToFloat((int) factors[k]), n);
            }
            if (k > 0) {
                combine(kind, s.acc, s.next, n);
            }
        }
        finishNarrow(s, n);
        for (int t = 0; t < targetCount; t++) {
            writeNarrow(s, targets[t], targetAt[t] + at * type.size(), n);
        }
    }

    private void finishNarrow(Narrow s, int n) {
        if (kind == ReduceOp.Kind.AVG && ranks > 1) {
            divideAll(s.acc, ranks, n);
        }
        round(s, n);
    }

    // ---- the same in steps, for algorithms that forward partial results

    /** Reads this rank's elements, scaled, as wide ones. */
    public void load(
            MemorySegment from, long at, long factor, MemorySegment wide, long wideAt, long n) {
        for (long i = 0; i < n; i += BLOCK) {
            int m = (int) Math.min(BLOCK, n - i);
            if (type.isNarrowFloat()) {
                Narrow s = narrowScratch();
                widen(s, from, at + i * type.size(), m, s.acc);
                if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
                    multiply(s.acc, Float.intBitsToFloat((int) factor), m);
                }
                MemorySegment.copy(
                        s.acc, 0, wide, JAVA_FLOAT_UNALIGNED, wideAt + i * Float.BYTES, m);
            } else if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
                long x = i * type.size();
                Kernel.of(type, Kernel.Op.MUL).apply(from, at + x, factor, wide, wideAt + x, m);
            } else {
                long x = i * type.size();
                copy(from, at + x, wide, wideAt + x, (long) m * type.size());
            }
        }
    }

    /** Combines wide elements: {@code o = a op b}. */
    public void combineWide(
            MemorySegment a, long ao, MemorySegment b, long bo, MemorySegment o, long oo, long n) {
        Kernel kernel = Kernel.of(wide(type), combining(kind));
        int size = wide(type).size();
        for (long i = 0; i < n; i += BLOCK) {
            long x = i * size;
            kernel.combine(a, ao + x, b, bo + x, o, oo + x, (int) Math.min(BLOCK, n - i));
        }
    }

    /** Finishes wide elements (average, rounding) into a buffer. */
    public void store(MemorySegment wide, long wideAt, MemorySegment to, long at, long n) {
        for (long i = 0; i < n; i += BLOCK) {
            int m = (int) Math.min(BLOCK, n - i);
            long x = i * type.size();
            if (type.isNarrowFloat()) {
                Narrow s = narrowScratch();
                MemorySegment.copy(
                        wide, JAVA_FLOAT_UNALIGNED, wideAt + i * Float.BYTES, s.acc, 0, m);
                finishNarrow(s, m);
                writeNarrow(s, to, at + x, m);
            } else if (kind == ReduceOp.Kind.AVG && ranks > 1) {
                divide(wide, wideAt + x, to, at + x, m);
            } else {
                copy(wide, wideAt + x, to, at + x, (long) m * type.size());
            }
        }
    }

    // ---- pieces

    /** Copies bytes unless source and target are the same memory. */
    public static void copy(MemorySegment from, long at, MemorySegment to, long toAt, long bytes) {
        if (from == to && at == toAt) {
            return;
        }
        MemorySegment.copy(from, at, to, toAt, bytes);
    }

    /** What a reduction does with two elements, before or after what it does with one. */
    public static Kernel.Op combining(ReduceOp.Kind kind) {
        return switch (kind) {
            case SUM, AVG, PRE_MUL_SUM -> Kernel.Op.ADD;
            case PROD -> Kernel.Op.MUL;
            case MIN -> Kernel.Op.MIN;
            case MAX -> Kernel.Op.MAX;
        };
    }

    private static void combine(ReduceOp.Kind kind, float[] a, float[] b, int n) {
        switch (combining(kind)) {
            case ADD -> {
                for (int i = 0; i < n; i++) {
                    a[i] += b[i];
                }
            }
            case MUL -> {
                for (int i = 0; i < n; i++) {
                    a[i] *= b[i];
                }
            }
            case MIN -> {
                for (int i = 0; i < n; i++) {
                    a[i] = Math.min(a[i], b[i]);
                }
            }
            default -> {
                for (int i = 0; i < n; i++) {
                    a[i] = Math.max(a[i], b[i]);
                }
            }
        }
    }

    private static void multiply(float[] a, float factor, int n) {
        for (int i = 0; i < n; i++) {
            a[i] *= factor;
        }
    }

    private static void divideAll(float[] a, float divisor, int n) {
        for (int i = 0; i < n; i++) {
            a[i] /= divisor;
        }
    }

    private void widen(Narrow s, MemorySegment from, long at, int n, float[] out) {
        short[] shorts = s.shorts;
        byte[] bytes = s.bytes;
        if (type.size() == 2) {
            MemorySegment.copy(from, JAVA_SHORT_UNALIGNED, at, shorts, 0, n);
        } else {
            MemorySegment.copy(from, JAVA_BYTE, at, bytes, 0, n);
        }
        switch (type) {
            case FLOAT16 -> {
                for (int i = 0; i < n; i++) {
                    out[i] = Float.float16ToFloat(shorts[i]);
                }
            }
            case BFLOAT16 -> {
                for (int i = 0; i < n; i++) {
                    out[i] = Bfloat16.toFloat(shorts[i]);
                }
            }
            case FLOAT8E4M3 -> {
                for (int i = 0; i < n; i++) {
                    out[i] = Codec.e4m3(bytes[i]);
                }
            }
            default -> {
                for (int i = 0; i < n; i++) {
                    out[i] = Codec.e5m2(bytes[i]);
                }
            }
        }
    }

    private void round(Narrow s, int n) {
        float[] in = s.acc;
        short[] shorts = s.shorts;
        byte[] bytes = s.bytes;
        switch (type) {
            case FLOAT16 -> {
                for (int i = 0; i < n; i++) {
                    shorts[i] = Float.floatToFloat16(in[i]);
                }
            }
            case BFLOAT16 -> {
                for (int i = 0; i < n; i++) {
                    shorts[i] = Bfloat16.of(in[i]);
                }
            }
            case FLOAT8E4M3 -> {
                for (int i = 0; i < n; i++) {
                    bytes[i] = Codec.toE4m3(in[i]);
                }
            }
            default -> {
                for (int i = 0; i < n; i++) {
                    bytes[i] = Codec.toE5m2(in[i]);
                }
            }
        }
    }

    private void writeNarrow(Narrow s, MemorySegment to, long at, int n) {
        if (type.size() == 2) {
            MemorySegment.copy(s.shorts, 0, to, JAVA_SHORT_UNALIGNED, at, n);
        } else {
            MemorySegment.copy(s.bytes, 0, to, JAVA_BYTE, at, n);
        }
    }

    private MemorySegment scratch() {
        if (acc == null) {
            acc = Arena.ofAuto().allocate(BLOCK * 8L, 64);
        }
        return acc;
    }

    private MemorySegment scaledScratch() {
        if (scaled == null) {
            scaled = Arena.ofAuto().allocate(BLOCK * 8L, 64);
        }
        return scaled;
    }

    private Narrow narrowScratch() {
        if (narrow == null) {
            narrow = new Narrow();
        }
        return Objects.requireNonNull(narrow);
    }
}

package io.jccl.bench.probe;

import io.jccl.internal.ThreadTeam;
import java.util.Arrays;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Loops over arrays of a given size, on several threads, each with its own arrays. The JIT
 * vectorizes these loops; the third is STREAM's triad (McCalpin, 1995).
 */
final class WorkingSets implements AutoCloseable {
    enum Loop {
        /** Compares two equal arrays: a vectorized intrinsic of the JVM. */
        READ(2),
        /** Fills one array. */
        WRITE(1),
        /** {@code a = b + s c}: two arrays read, one written. */
        TRIAD(3);

        /** Number of arrays in the working set. */
        final int arrays;

        Loop(int arrays) {
            this.arrays = arrays;
        }

        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    private static final float FACTOR = 3;

    /** Longs in two cache lines, since adjacent lines are prefetched together. */
    private static final int PAD = 16;

    private final Loop loop;
    private final int count;
    private final int[][] whole;
    private final int[][] twin;
    private final float[][] a;
    private final float[][] b;
    private final float[][] c;
    private final long[] differences;
    private final ThreadTeam team;
    private int times;
    private long passes;

    /**
     * Fills the arrays.
     *
     * @param loop access pattern
     * @param threads number of threads
     */
    WorkingSets(Loop loop, long bytes, int threads) {
        this.loop = loop;
        this.count = Math.toIntExact(Math.max(1, bytes / threads / loop.arrays / Float.BYTES));
        whole = new int[threads][loop == Loop.TRIAD ? 0 : count];
        twin = new int[threads][loop == Loop.READ ? count : 0];
        a = new float[threads][loop == Loop.TRIAD ? count : 0];
        b = new float[threads][a[0].length];
        c = new float[threads][a[0].length];
        // Padded, so that threads do not share a cache line.
        differences = new long[threads * PAD];
        for (int t = 0; t < threads; t++) {
            Arrays.fill(whole[t], t + 1);
            Arrays.fill(twin[t], t + 1);
            Arrays.fill(b[t], t);
            Arrays.fill(c[t], 1);
        }
        team = new ThreadTeam(threads, "jccl-probe", this::share);
    }

    /** Bytes that one pass reads and writes. */
    long bytes() {
        return (long) count * Float.BYTES * loop.arrays * whole.length;
    }

    /** Runs the loop over the whole working set a number of times. */
    void run(int howOften) {
        times = howOften;
        Throwable failure = team.run();
        passes += howOften;
        if (failure != null) {
            throw new IllegalStateException("a thread of the probe failed: " + failure, failure);
        }
    }

    private void share(int thread) {
        for (int i = 0; i < times; i++) {
            switch (loop) {
                case READ ->
                        differences[PAD * thread] += Arrays.mismatch(whole[thread], twin[thread]);
                case WRITE -> Arrays.fill(whole[thread], (int) (passes + i));
                case TRIAD -> triad(a[thread], b[thread], c[thread], FACTOR);
            }
        }
    }

    private static void triad(float[] a, float[] b, float[] c, float factor) {
        for (int i = 0; i < a.length; i++) {
            a[i] = b[i] + factor * c[i];
        }
    }

    /** The error in the loops' results; null if none. */
    @Nullable String wrong() {
        for (int t = 0; t < whole.length; t++) {
            double found;
            double expected;
            switch (loop) {
                case READ -> {
                    found = differences[PAD * t];
                    expected = -passes; // -1 for each
                }
                case WRITE -> {
                    found = whole[t][count - 1];
                    expected = (int) (passes - 1);
                }
                default -> {
                    found = a[t][count - 1];
                    expected = t + FACTOR;
                }
            }
            if (found != expected) {
                return loop + " on thread " + t + " gave " + found + ", expected " + expected;
            }
        }
        return null;
    }

    @Override
    public void close() {
        team.close();
    }
}

package io.jccl.bench;

import java.util.Arrays;

/** Arithmetic that takes a given time on a core, or a given matrix product. */
public final class BusyWork {
    private static final int CALIBRATIONS = 15;
    private static final long SAMPLE_NANOS = 2_000_000;

    /** Keeps the results, so that the compiler cannot eliminate the work. */
    private volatile double sink;

    private final double stepsPerMicro;
    private float[] a = {};
    private float[] b = {};
    private float[] c = {};

    public BusyWork() {
        long steps = 1000;
        // Once it takes this long, the loop is compiled and the sample is long enough for the
        // clock.
        while (time(steps) < SAMPLE_NANOS) {
            steps *= 2;
        }
        // The fastest: other load on the machine can only add time.
        long least = Long.MAX_VALUE;
        for (int i = 0; i < CALIBRATIONS; i++) {
            least = Math.min(least, time(steps));
        }
        stepsPerMicro = steps * 1e3 / least;
    }

    private long time(long steps) {
        long began = System.nanoTime();
        spin(steps);
        return System.nanoTime() - began;
    }

    /** Number of steps that keep a core busy for a time, using only registers. */
    public long steps(double micros) {
        return Math.round(micros * stepsPerMicro);
    }

    /** A chain of dependent multiplications and additions. */
    public void spin(long steps) {
        double x = sink;
        for (long i = 0; i < steps; i++) {
            x = x * 0.999999 + 1e-6;
        }
        sink = x;
    }

    /** Creates operands for {@link #gemm}. */
    void prepareGemm(int n) {
        a = new float[n * n];
        b = new float[n * n];
        c = new float[n * n];
        Arrays.fill(a, 1f / n);
        Arrays.fill(b, 1f);
    }

    /** {@code c = a b}, row by row; the inner loop is one that the JIT vectorises. */
    void gemm(int n) {
        for (int i = 0; i < n; i++) {
            Arrays.fill(c, i * n, (i + 1) * n, 0);
            for (int k = 0; k < n; k++) {
                row(a[i * n + k], k * n, i * n, n);
            }
        }
        sink = c[n * n - 1];
    }

    private void row(float factor, int from, int to, int n) {
        for (int j = 0; j < n; j++) {
            c[to + j] += factor * b[from + j];
        }
    }
}

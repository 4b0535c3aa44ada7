package io.jccl.gemm;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.internal.ThreadTeam;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Products on the host's cores. The result is divided into regions, which the threads take one by
 * one; each thread computes with its own memory.
 */
final class HostMatmul implements Matmul {
    /**
     * Products with fewer multiplications, which take some 50 microseconds, are not worth waking
     * threads for.
     */
    private static final long SHARED_FROM = 1L << 21;

    /**
     * With few rows, loading the right factor dominates: an element costs as much as this many
     * multiplications.
     */
    private static final int FETCH = 8;

    /** Regions with shorter sides than this are not split to occupy more threads. */
    private static final int LEAST_SIDE = 64;

    private final Device device;
    private final ThreadTeam crew;
    private final Region[] regions;
    private final Object turn = new Object();
    private @Nullable Product free;
    private volatile boolean closed;

    /** A product that is enqueued or running; reused. */
    private final class Product implements Runnable {
        private @Nullable Matrix a;
        private @Nullable Matrix b;
        private @Nullable Matrix c;
        private float beta;
        private @Nullable Product next;

        @Override
        public void run() {
            Matrix x = Objects.requireNonNull(a);
            Matrix y = Objects.requireNonNull(b);
            Matrix z = Objects.requireNonNull(c);
            float f = beta;
            recycle(this);
            compute(x, y, z, f);
        }
    }

    // The current product of the thread team; set by the thread that holds the lock.
    private int down;
    private int across;
    private final AtomicInteger nextRegion = new AtomicInteger();

    /** See {@link Matmul#of}. */
    public HostMatmul(Device device, int threads) {
        if (device.kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException("the device is " + device + ", expected the host's");
        }
        this.device = device;
        this.crew = new ThreadTeam(threads, "jccl-matmul", this::share);
        this.regions = new Region[threads];
        Tile tile = Tile.best();
        for (int i = 0; i < threads; i++) {
            regions[i] = new Region(tile);
        }
    }

    @Override
    public void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
        Shapes.check(a, b, c);
        host(a, "a");
        host(b, "b");
        host(c, "c");
        if (stream.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "the stream belongs to "
                            + stream.device()
                            + ", the matrices lie in host memory; expected a stream of "
                            + device);
        }
        if (closed) {
            throw new IllegalStateException("the Matmul is closed; make a new one");
        }
        Product p = take();
        // Rows of c must be contiguous; if its columns are, the transposes are multiplied. This
        // also turns a column into a row, for which there is a fast path.
        boolean swap =
                c.columns() == 1 ? c.rowStride() == 1 && c.rows() > 1 : c.columnStride() != 1;
        p.a = swap ? b.transposed() : a;
        p.b = swap ? a.transposed() : b;
        p.c = swap ? c.transposed() : c;
        p.beta = beta;
        stream.launchHostFunction(p);
    }

    private static void host(Matrix m, String name) {
        Buffer buffer = m.buffer();
        if (buffer.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    ("%s lies on %s, this Matmul computes on the host; copy it there, or use"
                                    + " Matmul.of that device")
                            .formatted(name, buffer.device()));
        }
        buffer.asSegment();
    }

    private Product take() {
        synchronized (crew) {
            Product p = free;
            if (p != null) {
                free = p.next;
                p.next = null;
                return p;
            }
        }
        return new Product();
    }

    private void recycle(Product p) {
        synchronized (crew) {
            p.a = null;
            p.b = null;
            p.c = null;
            p.next = free;
            free = p;
        }
    }

    private void compute(Matrix a, Matrix b, Matrix c, float beta) {
        long m = c.rows();
        long n = c.columns();
        if (m == 0 || n == 0) {
            return;
        }
        synchronized (turn) {
            if (closed) {
                throw new IllegalStateException("the Matmul was closed before the product ran");
            }
            divide(a, b, c);
            for (Region r : regions) {
                r.set(a, b, c, beta);
            }
            try {
                runRegions();
            } finally {
                for (Region r : regions) {
                    r.clear();
                }
            }
        }
    }

    /** Divides the result into regions; if there are few, equally many per thread. */
    private void divide(Matrix a, Matrix b, Matrix c) {
        long m = c.rows();
        long n = c.columns();
        int widest = Region.columns(b, c);
        down = Math.toIntExact((m + Region.ROWS - 1) / Region.ROWS);
        across = Math.toIntExact((n + widest - 1) / widest);
        int threads = regions.length;
        long work = m * n * Math.max(1, a.columns()) * (Region.streams(b, c) ? FETCH : 1);
        if (threads == 1 || work < SHARED_FROM) {
            return;
        }
        while (down * across % threads != 0 && down * across < 4 * threads) {
            long height = m / down;
            long width = n / across;
            if (Math.max(height, width) < 2 * LEAST_SIDE) {
                return;
            }
            if (width >= height) {
                across++;
            } else {
                down++;
            }
        }
    }

    private void runRegions() {
        nextRegion.set(0);
        if (regions.length == 1 || down * across < 2) {
            share(0);
            return;
        }
        Throwable f = crew.run();
        if (f != null) {
            throw new IllegalStateException("a part of the product failed: " + f.getMessage(), f);
        }
    }

    /** A thread's work: regions that no other thread has taken. */
    private void share(int me) {
        int i;
        while ((i = nextRegion.getAndIncrement()) < down * across) {
            regions[me].compute(i / across, down, i % across, across);
        }
    }

    @Override
    public void close() {
        closed = true;
        synchronized (turn) {
            crew.close();
        }
    }

    @Override
    public String toString() {
        return "Matmul[" + device + ", " + regions.length + " threads]";
    }

    /** Whether matrices of a type can be multiplied. */
    static boolean isFactor(DataType type) {
        return type == DataType.FLOAT32 || type == DataType.BFLOAT16;
    }
}

package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.cli.shell.Drives;
import io.jccl.cli.shell.Progress;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.Completion;
import io.jccl.offload.Layer;
import io.jccl.offload.LayerSchedule;
import io.jccl.offload.LayerTensor;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.ScheduleOptions;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import io.jccl.offload.Tiers;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import io.jccl.parallel.Part;
import io.jccl.train.Owned;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of a product. One schedule feeds panels of B to the stream of broadcasts, another
 * feeds panels of A to the stream of products, which waits for the broadcasts; both prefetch as far
 * as there are slots.
 */
public final class MatmulRun implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofMinutes(30);
    private static final long LARGEST_SLAB = 256L << 20;
    private static final long SMALLEST_SLAB = 1L << 20;

    /** Sums the time that a stream spends between two marks; used by that stream's thread. */
    private static final class Clock {
        private long began;
        private volatile long sum;
        final Runnable start = this::begin;
        final Runnable stop = this::end;

        private void begin() {
            began = System.nanoTime();
        }

        private void end() {
            sum = sum + System.nanoTime() - began;
        }
    }

    /**
     * The result over all ranks.
     *
     * @param seconds from the first rank's start to the last one's end
     * @param computeSeconds of products, mean over ranks
     * @param broadcastSeconds of broadcasts including waits, mean over ranks
     * @param received bytes that this rank received from others
     * @param toDevice bytes copied to this rank's device from its host
     * @param devicePeak peak device memory in bytes, maximum over ranks
     * @param checked elements that were compared one by one, sum over ranks
     * @param wrong the error found on this rank; null if none
     * @param wrongRanks number of ranks with an error
     */
    public record Result(
            double seconds,
            double computeSeconds,
            double broadcastSeconds,
            long received,
            long toDevice,
            long devicePeak,
            long checked,
            @Nullable String wrong,
            int wrongRanks) {}

    private final Communicator comm;
    private final MatmulPlan plan;
    private final MatmulInputs inputs;
    private final Consumer<List<Buffer>> afterProduct;
    private final Progress progress;
    private final Owned open = new Owned();
    private final Budgets budgets;
    private final BufferPool device;
    private final BufferPool pinned;
    private final @Nullable TierStore store;
    private final TransferEngine productEngine;
    private final TransferEngine broadcastEngine;
    private final Matmul matmul;
    private final List<MatmulPlan.Panel> panels;
    private final Part rows;
    private final Clock products = new Clock();
    private final Clock broadcasts = new Clock();

    /** Homes of this rank's panels: of A by tile and panel, of B by panel and strip. */
    private final LayerTensor[][] a;

    private final @Nullable LayerTensor[][] b;

    /** Tiles of C, by tile and strip, in host memory or a store. */
    private final @Nullable Buffer[][] c;

    private final TierStore.@Nullable Place[][] places;
    private final Buffer[] staging;
    private long received;

    public MatmulRun(
            Communicator comm,
            MatmulPlan plan,
            long seed,
            int threads,
            long deviceBytes,
            @Nullable TierStore store,
            Progress progress,
            Consumer<List<Buffer>> afterProduct) {
        this.comm = comm;
        this.plan = plan;
        this.inputs = new MatmulInputs(seed);
        this.store = store;
        this.progress = progress;
        this.afterProduct = afterProduct;
        this.panels = plan.panels();
        this.rows = plan.rows(comm.rank());
        this.budgets = new Budgets(Map.of(Tier.DEVICE, deviceBytes));
        this.a = new LayerTensor[plan.high()][panels.size()];
        this.b = new LayerTensor[panels.size()][plan.strips()];
        this.c = new Buffer[plan.high()][plan.strips()];
        this.places = new TierStore.Place[plan.high()][plan.strips()];
        try {
            Device d = comm.device();
            productEngine = add(TransferEngine.create(d, TransferOptions.DEFAULT));
            broadcastEngine = add(TransferEngine.create(d, TransferOptions.DEFAULT));
            // Slabs of exactly the requested size: the budget is for tiles only.
            device = add(BufferPool.device(d, budgets, PoolOptions.DEFAULT.withSlabBytes(1)));
            long block = rows.count() * plan.n() * Float.BYTES;
            PoolOptions options =
                    PoolOptions.DEFAULT.withSlabBytes(
                            Math.clamp(block / 4, SMALLEST_SLAB, LARGEST_SLAB));
            pinned =
                    add(
                            BufferPool.pinned(
                                    d,
                                    budgets,
                                    store == null
                                            ? options
                                            : options.withAlignment(Drives.ALIGNMENT)));
            matmul = add(Matmul.of(d, threads));
            staging = new Buffer[store == null ? 0 : MatmulPlan.SLOTS];
            fill();
        } catch (RuntimeException | Error e) {
            endAll(e);
            try {
                close();
            } catch (RuntimeException more) {
                e.addSuppressed(more);
            }
            throw e;
        }
    }

    /**
     * Aborts the other ranks before this one frees memory: on GPUs freeing waits for enqueued work,
     * and a broadcast without one of its ranks would never end.
     */
    private void endAll(Throwable error) {
        comm.abort(error.toString());
    }

    private <T extends AutoCloseable> T add(T t) {
        return open.add(t);
    }

    private void fill() {
        long widest = Math.max(plan.tile(comm.rank(), 0).count(), plan.depth());
        long longest = Math.max(plan.depth(), plan.width());
        try (@Nullable Buffer through =
                store == null ? null : pinned.allocate(DataType.FLOAT32, widest * longest)) {
            fillInputs(through);
        }
        for (int i = 0; i < plan.high(); i++) {
            for (int j = 0; j < plan.strips(); j++) {
                long count = plan.tile(comm.rank(), i).count() * plan.strip(j).count();
                if (store == null) {
                    c[i][j] = add(pinned.allocate(DataType.FLOAT32, count));
                } else {
                    places[i][j] = add(store.place("c." + i + "." + j, DataType.FLOAT32, count));
                }
            }
        }
        for (int s = 0; s < staging.length; s++) {
            long count = plan.tile(comm.rank(), 0).count() * plan.width();
            staging[s] = add(pinned.allocate(DataType.FLOAT32, count));
        }
    }

    private void fillInputs(@Nullable Buffer through) {
        for (int i = 0; i < plan.high(); i++) {
            Part t = plan.tile(comm.rank(), i);
            Part high = new Part(rows.from() + t.from(), t.count());
            for (int q = 0; q < panels.size(); q++) {
                Part deep = new Part(panels.get(q).from(), panels.get(q).count());
                a[i][q] = home("a." + i + "." + q, MatmulInputs.A, high, deep, through);
            }
        }
        for (int q = 0; q < panels.size(); q++) {
            MatmulPlan.Panel panel = panels.get(q);
            for (int j = 0; j < plan.strips() && panel.owner() == comm.rank(); j++) {
                Part deep = new Part(panel.from(), panel.count());
                b[q][j] = home("b." + q + "." + j, MatmulInputs.B, deep, plan.strip(j), through);
            }
        }
    }

    private LayerTensor home(
            String name, int which, Part high, Part wide, @Nullable Buffer through) {
        long count = high.count() * wide.count();
        if (store == null || through == null) {
            Buffer home = add(pinned.allocate(DataType.FLOAT32, count));
            inputs.fill(which, high, wide, home);
            return LayerTensor.pinned(name, home);
        }
        Buffer part = through.slice(0, count);
        inputs.fill(which, high, wide, part);
        TierStore.Place place = add(store.place(name, DataType.FLOAT32, count));
        place.write(part).await(PATIENCE);
        return LayerTensor.nvme(name, DataType.FLOAT32, count, place);
    }

    /** Computes and checks. An error aborts the other ranks too. */
    public Result run() {
        try {
            return compute();
        } catch (RuntimeException | Error e) {
            endAll(e);
            throw e;
        }
    }

    private Result compute() {
        List<Layer> forProducts = new ArrayList<>();
        List<Layer> forBroadcasts = new ArrayList<>();
        for (int j = 0; j < plan.strips(); j++) {
            for (int i = 0; i < plan.high(); i++) {
                for (int q = 0; q < panels.size(); q++) {
                    String name = j + "." + i + "." + q;
                    forProducts.add(Layer.of(name, a[i][q]));
                    LayerTensor own = b[q][j];
                    if (own != null) {
                        forBroadcasts.add(Layer.of(name, own));
                    }
                }
            }
        }
        var options = ScheduleOptions.DEFAULT.withDepth(MatmulPlan.SLOTS - 1).withTimeout(PATIENCE);
        LayerSchedule left =
                add(
                        LayerSchedule.create(
                                forProducts,
                                new Tiers(productEngine, device, pinned, store),
                                options));
        LayerSchedule right =
                add(
                        LayerSchedule.create(
                                forBroadcasts,
                                new Tiers(broadcastEngine, device, pinned, store),
                                options));
        comm.barrier(comm.device().defaultStream());
        comm.device().defaultStream().synchronize(PATIENCE);
        long began = System.nanoTime();
        left.begin(LayerSchedule.Pass.FORWARD);
        right.begin(LayerSchedule.Pass.FORWARD);
        multiply(left, right);
        left.end();
        right.end();
        double seconds = (System.nanoTime() - began) / 1e9;
        // Transfer engines count a copy before it can be waited for, schedules slightly later.
        long toDevice =
                productEngine.toDeviceStats().bytes() + broadcastEngine.toDeviceStats().bytes();
        afterProduct.accept(tilesInMemory());
        var check = new MatmulCheck(comm, plan, inputs, this::tile);
        String wrong = check.run();
        return gather(seconds, toDevice, check.compared(), wrong);
    }

    private List<Buffer> tilesInMemory() {
        List<Buffer> all = new ArrayList<>();
        for (Buffer[] row : c) {
            for (Buffer tile : row) {
                if (tile != null) {
                    all.add(tile);
                }
            }
        }
        return all;
    }

    private void multiply(LayerSchedule left, LayerSchedule right) {
        Stream compute = left.compute();
        Stream travel = right.compute();
        long high = plan.tile(comm.rank(), 0).count();
        Buffer[] tiles = new Buffer[MatmulPlan.SLOTS];
        Buffer[] ring = new Buffer[MatmulPlan.SLOTS];
        Event[] came = new Event[MatmulPlan.SLOTS];
        Event[] used = new Event[MatmulPlan.SLOTS];
        Event[] done = new Event[MatmulPlan.SLOTS];
        for (int s = 0; s < MatmulPlan.SLOTS; s++) {
            tiles[s] = add(device.allocate(DataType.FLOAT32, high * plan.width()));
            ring[s] = add(device.allocate(DataType.FLOAT32, plan.depth() * plan.width()));
            came[s] = add(comm.device().newEvent());
            used[s] = add(comm.device().newEvent());
            done[s] = add(comm.device().newEvent());
        }
        @Nullable Transfer[] leaving = new Transfer[MatmulPlan.SLOTS];
        @Nullable Completion[] written = new Completion[MatmulPlan.SLOTS];
        int step = 0;
        int own = 0;
        int tile = 0;
        for (int j = 0; j < plan.strips(); j++) {
            long wide = plan.strip(j).count();
            for (int i = 0; i < plan.high(); i++, tile++) {
                long tall = plan.tile(comm.rank(), i).count();
                int t = tile % MatmulPlan.SLOTS;
                progress.at("matmul", tile, (long) plan.strips() * plan.high(), "tiles");
                Transfer before = leaving[t];
                if (before != null) {
                    before.before(compute);
                }
                Buffer sums = tiles[t].slice(0, tall * wide);
                Matrix z = Matrix.of(sums, tall, wide);
                for (int q = 0; q < panels.size(); q++, step++) {
                    MatmulPlan.Panel panel = panels.get(q);
                    int s = step % MatmulPlan.SLOTS;
                    Buffer part = ring[s].slice(0, panel.count() * wide);
                    boolean mine = panel.owner() == comm.rank();
                    Buffer send = mine ? right.acquire(own).parameters().getFirst() : null;
                    travel.waitFor(used[s]);
                    travel.launchHostFunction(broadcasts.start);
                    comm.broadcast(send, part, panel.owner(), travel);
                    travel.launchHostFunction(broadcasts.stop);
                    came[s].record(travel);
                    if (mine) {
                        right.release();
                        own++;
                    } else {
                        received += part.byteSize();
                    }
                    Buffer rowPanel = left.acquire(step).parameters().getFirst();
                    compute.waitFor(came[s]);
                    compute.launchHostFunction(products.start);
                    matmul.multiply(
                            Matrix.of(rowPanel, tall, panel.count()),
                            Matrix.of(part, panel.count(), wide),
                            z,
                            q == 0 ? 0 : 1,
                            compute);
                    compute.launchHostFunction(products.stop);
                    used[s].record(compute);
                    left.release();
                }
                Completion old = written[t];
                if (old != null) {
                    old.await(PATIENCE);
                }
                done[t].record(compute);
                Buffer home =
                        store == null
                                ? Objects.requireNonNull(c[i][j])
                                : staging[t].slice(0, tall * wide);
                leaving[t] = productEngine.toHost(sums, home, 0, done[t]);
                keep(tile - 1, leaving, written);
            }
        }
        keep(tile - 1, leaving, written);
        for (int s = 0; s < MatmulPlan.SLOTS; s++) {
            Transfer last = leaving[s];
            if (last != null) {
                last.await(PATIENCE);
            }
            Completion end = written[s];
            if (end != null) {
                end.await(PATIENCE);
            }
        }
    }

    /** Starts writing to the store a tile that has left the device. */
    private void keep(int tile, @Nullable Transfer[] leaving, @Nullable Completion[] written) {
        if (store == null || tile < 0) {
            return;
        }
        int t = tile % MatmulPlan.SLOTS;
        int j = tile / plan.high();
        int i = tile % plan.high();
        Objects.requireNonNull(leaving[t]).await(PATIENCE);
        long count = plan.tile(comm.rank(), i).count() * plan.strip(j).count();
        written[t] = Objects.requireNonNull(places[i][j]).write(staging[t].slice(0, count));
    }

    /** A tile of C, in memory or read from the store. */
    private Buffer tile(int i, int j) {
        Buffer tile = c[i][j];
        if (tile == null) {
            tile = staging[0].slice(0, plan.tile(comm.rank(), i).count() * plan.strip(j).count());
            Objects.requireNonNull(places[i][j]).read(tile).await(PATIENCE);
        }
        return tile;
    }

    private Result gather(double seconds, long toDevice, long checked, @Nullable String wrong) {
        double[] sums =
                reduce(
                        ReduceOp.SUM,
                        products.sum / 1e9,
                        broadcasts.sum / 1e9,
                        (double) checked,
                        wrong == null ? 0 : 1);
        double[] most = reduce(ReduceOp.MAX, seconds, (double) budgets.peak(Tier.DEVICE));
        return new Result(
                most[0],
                sums[0] / comm.size(),
                sums[1] / comm.size(),
                received,
                toDevice,
                (long) most[1],
                (long) sums[2],
                wrong,
                (int) sums[3]);
    }

    private double[] reduce(ReduceOp op, double... values) {
        Stream stream = comm.device().defaultStream();
        double[] result = new double[values.length];
        try (Buffer there = comm.device().allocate(DataType.FLOAT64, values.length)) {
            there.copyFrom(MemorySegment.ofArray(values));
            comm.allReduce(there, op, stream);
            stream.synchronize(PATIENCE);
            there.copyTo(MemorySegment.ofArray(result));
        }
        return result;
    }

    /** Closes everything, even if closing a part fails. */
    @Override
    public void close() {
        open.close();
    }
}

package io.jccl.bench;

import io.jccl.cli.shell.Drives;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Statistics;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.TierStore;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The measurements of {@code jccl bandwidth}: consecutive copies of a buffer between two events;
 * the median of several such samples.
 */
public final class BandwidthRun {
    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final int LATENCY_BYTES = 8;
    private static final int LATENCY_COPIES = 100;
    private static final double GB = 1e9;
    private static final double MICRO = 1e6;

    private final List<? extends Device> devices;
    private final long bytes;
    private final int samples;
    private final int copies;
    private final @Nullable TierStore nvme;

    public BandwidthRun(
            List<? extends Device> devices,
            long bytes,
            int samples,
            int copies,
            @Nullable TierStore nvme) {
        this.devices = devices;
        this.bytes = bytes;
        this.samples = samples;
        this.copies = copies;
        this.nvme = nvme;
    }

    /** A copied buffer differs from its source. */
    public static final class WrongDataException extends RuntimeException {
        private static final long serialVersionUID = 1;

        WrongDataException(String message) {
            super(message);
        }
    }

    /**
     * Measures one case.
     *
     * @return a matrix, NaN for pairs that do not exist; empty if the case does not apply to this
     *     machine
     */
    public double[][] measure(BandwidthCase c) {
        if (c.isNvme()) {
            return nvme == null ? new double[0][] : new double[][] {{nvme(c, nvme)}};
        }
        if (c.isPeer()) {
            return devices.size() < 2 ? new double[0][] : peers(c);
        }
        double[][] row = new double[1][devices.size()];
        for (int i = 0; i < devices.size(); i++) {
            row[0][i] = one(c, devices.get(i));
        }
        return row;
    }

    private double one(BandwidthCase c, Device device) {
        long size = c.isLatency() ? LATENCY_BYTES : bytes;
        boolean pageable =
                c == BandwidthCase.HOST_TO_DEVICE_PAGEABLE
                        || c == BandwidthCase.DEVICE_TO_HOST_PAGEABLE;
        boolean up = c.label().startsWith("host_to_device");
        if (c == BandwidthCase.LOCAL) {
            try (Buffer a = device.allocate(DataType.UINT8, size);
                    Buffer b = device.allocate(DataType.UINT8, size)) {
                // It reads and writes the same memory.
                return 2 * copied(device, a, b, null);
            }
        }
        try (Buffer host = host(device, size, pageable);
                Buffer there = device.allocate(DataType.UINT8, size)) {
            Buffer source = up ? host : there;
            Buffer target = up ? there : host;
            return switch (c) {
                case HOST_TO_DEVICE_BOTH, DEVICE_TO_HOST_BOTH -> {
                    try (Buffer hostToo = host(device, size, false);
                            Buffer thereToo = device.allocate(DataType.UINT8, size)) {
                        Buffer[] against = {up ? thereToo : hostToo, up ? hostToo : thereToo};
                        yield copied(device, source, target, against);
                    }
                }
                case HOST_TO_DEVICE_ENGINE, DEVICE_TO_HOST_ENGINE ->
                        engine(device, source, target, up);
                case HOST_TO_DEVICE_LATENCY, DEVICE_TO_HOST_LATENCY ->
                        latency(device, source, target);
                default -> copied(device, source, target, null);
            };
        }
    }

    private static Buffer host(Device device, long size, boolean pageable) {
        return device.kind() == Device.Kind.CUDA && !pageable
                ? Cuda.pinned(DataType.UINT8, size)
                : Device.host().allocate(DataType.UINT8, size);
    }

    private double[][] peers(BandwidthCase c) {
        int n = devices.size();
        double[][] all = new double[n][n];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                all[i][j] = i == j ? Double.NaN : peer(c, devices.get(i), devices.get(j));
            }
        }
        return all;
    }

    private double peer(BandwidthCase c, Device here, Device other) {
        if (Cuda.canAccessPeer(here, other)) {
            Cuda.enablePeerAccess(here, other);
        }
        try (Buffer a = here.allocate(DataType.UINT8, bytes);
                Buffer b = other.allocate(DataType.UINT8, bytes)) {
            if (!c.isBothWays()) {
                return copied(here, c.isRead() ? b : a, c.isRead() ? a : b, null);
            }
            try (Buffer a2 = here.allocate(DataType.UINT8, bytes);
                    Buffer b2 = other.allocate(DataType.UINT8, bytes)) {
                return c.isRead()
                        ? bothWays(new OneWay(here, b, a), new OneWay(other, a2, b2))
                        : bothWays(new OneWay(here, a, b), new OneWay(other, b2, a2));
            }
        }
    }

    /** Copies in one direction by a stream of a device. */
    private record OneWay(Device by, Buffer source, Buffer target) {}

    /** Sum of the GB/s of both directions, each over its own time, like nvbandwidth's total. */
    private double bothWays(OneWay one, OneWay two) {
        byte[] pattern = fill(one.source);
        fill(two.source);
        try (Stream first = one.by.newStream();
                Stream second = two.by.newStream();
                Event firstStart = one.by.newEvent();
                Event firstEnd = one.by.newEvent();
                Event secondStart = two.by.newEvent();
                Event secondEnd = two.by.newEvent()) {
            first.copy(one.source, one.target);
            second.copy(two.source, two.target);
            first.synchronize(PATIENCE);
            second.synchronize(PATIENCE);
            double result =
                    median(() -> {
                        firstStart.record(first);
                        secondStart.record(second);
                        for (int i = 0; i < copies; i++) {
                            first.copy(one.source, one.target);
                            second.copy(two.source, two.target);
                        }
                        firstEnd.record(first);
                        secondEnd.record(second);
                        first.synchronize(PATIENCE);
                        second.synchronize(PATIENCE);
                        double each = (double) bytes * copies / GB;
                        return each / seconds(firstEnd.elapsedSince(firstStart))
                                + each / seconds(secondEnd.elapsedSince(secondStart));
                    });
            check(pattern, one.target);
            check(pattern, two.target);
            return result;
        }
    }

    /** GB/s of copies on a stream of one device, while others run in the opposite direction. */
    private double copied(
            Device device, Buffer source, Buffer target, Buffer @Nullable [] against) {
        byte[] pattern = fill(source);
        try (Stream stream = device.newStream();
                Stream opposite = device.newStream();
                Event start = device.newEvent();
                Event end = device.newEvent()) {
            stream.copy(source, target);
            stream.synchronize(PATIENCE);
            double result =
                    median(() -> {
                        if (against != null) {
                            // Half as many again, so that it is still running at the end.
                            for (int i = 0; i < copies + (copies + 1) / 2; i++) {
                                opposite.copy(against[0], against[1]);
                            }
                        }
                        start.record(stream);
                        for (int i = 0; i < copies; i++) {
                            stream.copy(source, target);
                        }
                        end.record(stream);
                        stream.synchronize(PATIENCE);
                        double seconds = seconds(end.elapsedSince(start));
                        opposite.synchronize(PATIENCE);
                        return (double) source.byteSize() * copies / seconds / GB;
                    });
            check(pattern, target);
            return result;
        }
    }

    private double engine(Device device, Buffer source, Buffer target, boolean up) {
        byte[] pattern = fill(source);
        try (TransferEngine engine = TransferEngine.create(device, TransferOptions.DEFAULT)) {
            Transfer[] all = new Transfer[copies];
            for (int i = 0; i < copies; i++) {
                all[i] = up ? engine.toDevice(source, target, 0) : engine.toHost(source, target, 0);
                all[i].await(PATIENCE);
            }
            double result =
                    median(() -> {
                        long began = System.nanoTime();
                        for (Transfer t : all) {
                            t.restart();
                        }
                        all[copies - 1].await(PATIENCE);
                        double seconds = (System.nanoTime() - began) / GB;
                        return (double) source.byteSize() * copies / seconds / GB;
                    });
            check(pattern, target);
            return result;
        }
    }

    /** Microseconds from the call to the completion of one small copy. */
    private double latency(Device device, Buffer source, Buffer target) {
        byte[] pattern = fill(source);
        try (Stream stream = device.newStream()) {
            double result =
                    median(() -> {
                        long began = System.nanoTime();
                        for (int i = 0; i < LATENCY_COPIES; i++) {
                            stream.copy(source, target);
                            stream.synchronize(PATIENCE);
                        }
                        return (System.nanoTime() - began) / GB / LATENCY_COPIES * MICRO;
                    });
            check(pattern, target);
            return result;
        }
    }

    private double nvme(BandwidthCase c, TierStore store) {
        try (BufferPool pool =
                        BufferPool.pinned(
                                devices.getFirst(),
                                new Budgets(Map.of()),
                                PoolOptions.DEFAULT.withAlignment(Drives.ALIGNMENT));
                Buffer pinned = pool.allocate(DataType.UINT8, bytes);
                TierStore.Place place = store.place("jccl-bandwidth", DataType.UINT8, bytes)) {
            byte[] pattern = fill(pinned);
            place.write(pinned).await(PATIENCE);
            boolean read = c == BandwidthCase.NVME_READ;
            double result =
                    median(() -> {
                        long began = System.nanoTime();
                        for (int i = 0; i < copies; i++) {
                            (read ? place.read(pinned) : place.write(pinned)).await(PATIENCE);
                        }
                        double seconds = (System.nanoTime() - began) / GB;
                        return (double) bytes * copies / seconds / GB;
                    });
            check(pattern, pinned);
            return result;
        }
    }

    private double median(DoubleSupplier sample) {
        double[] all = new double[samples];
        for (int i = 0; i < samples; i++) {
            all[i] = sample.getAsDouble();
        }
        return Statistics.median(all);
    }

    private static double seconds(Duration d) {
        return Math.max(d.toNanos(), 1) / GB;
    }

    /** Writes a pattern without a short period, up to the size of an array. */
    private static byte[] fill(Buffer source) {
        byte[] pattern = new byte[(int) Math.min(source.count(), 1 << 20)];
        for (int i = 0; i < pattern.length; i++) {
            pattern[i] = (byte) (i * 31 + (i >> 8) + 1);
        }
        long last = source.count() - pattern.length;
        source.slice(0, pattern.length).copyFrom(MemorySegment.ofArray(pattern));
        source.slice(last, pattern.length).copyFrom(MemorySegment.ofArray(pattern));
        return pattern;
    }

    private static void check(byte[] pattern, Buffer target) {
        byte[] found = new byte[pattern.length];
        // The end of the buffer was written last.
        long from = target.count() - pattern.length;
        target.slice(from, pattern.length).copyTo(MemorySegment.ofArray(found));
        int at = Arrays.mismatch(pattern, found);
        if (at >= 0) {
            throw new WrongDataException(
                    "byte "
                            + (from + at)
                            + " of the copy is "
                            + found[at]
                            + ", expected "
                            + pattern[at]);
        }
    }
}

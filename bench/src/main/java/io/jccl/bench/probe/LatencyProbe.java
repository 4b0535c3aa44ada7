package io.jccl.bench.probe;

import io.jccl.bench.BandwidthCase;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.jspecify.annotations.Nullable;

/** How long a cache line takes from core to core, and a few bytes from device to device. */
final class LatencyProbe {
    private static final int BYTES = 8;

    /** In the middle of memory that nothing else uses. */
    private static final int CELL = 32;

    private static final int STOP = -1;

    /** Then the other thread has no core of its own. */
    private static final int SPINS = 10_000;

    /** Two threads that answer each other through one cache line. */
    private static final class PingPong {
        private final AtomicIntegerArray cell = new AtomicIntegerArray(2 * CELL);
        private int sent;
        private int yields;

        void run(int times) {
            for (int i = 0; i < times; i++) {
                cell.setRelease(CELL, ++sent);
                await(++sent);
            }
        }

        void echo() {
            for (int next = 1; await(next); next += 2) {
                cell.setRelease(CELL, next + 1);
            }
        }

        /** Returns whether the value came. */
        private boolean await(int value) {
            for (int spin = 0; ; spin++) {
                int found = cell.getAcquire(CELL);
                if (found == value || found == STOP) {
                    return found == value;
                }
                if (spin < SPINS) {
                    Thread.onSpinWait();
                } else {
                    // Even values are what the measuring thread waits for: only it counts.
                    yields += value % 2 == 0 ? 1 : 0;
                    Thread.yield();
                }
            }
        }

        /** What is wrong with the last answer; null if nothing is. */
        @Nullable String wrong() {
            int found = cell.getAcquire(CELL);
            return found == sent ? null : "the cell holds " + found + ", expected " + sent;
        }
    }

    /** Between two threads, which the scheduler may put on any two cores. */
    ProbeResult.Latency cores(double share) {
        String how = "a cache line, threads unbound";
        if (Runtime.getRuntime().availableProcessors() < 2) {
            return row("core", "core", how, Outcome.lacking("this process may use one CPU"), 1);
        }
        PingPong pair = new PingPong();
        Thread other = Thread.ofPlatform().daemon().name("jccl-probe-echo").start(pair::echo);
        Outcome outcome;
        try {
            Timing timing = Meter.measure(pair::run, share);
            String wrong = pair.wrong();
            outcome = wrong == null ? Outcome.measured(timing) : Outcome.wrong(wrong);
            if (wrong == null && pair.yields > 0) {
                outcome =
                        outcome.withNote(
                                "the threads had to share a core: not a cache line's latency alone");
            }
        } finally {
            pair.cell.set(CELL, STOP);
        }
        joined(other);
        // There and back.
        return row("core", "core", how, outcome, 2);
    }

    private static void joined(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static ProbeResult.Latency row(
            String from, String to, String how, Outcome outcome, int ways) {
        Timing t = outcome.timing();
        Double nanos = t == null ? null : Double.valueOf(t.medianSeconds() * 1e9 / ways);
        return new ProbeResult.Latency(from, to, how, outcome, nanos);
    }

    /** Between host and devices, and between devices. */
    List<ProbeResult.Latency> devices(List<? extends Device> devices, Budget budget) {
        List<ProbeResult.Latency> rows = new ArrayList<>();
        boolean cuda = devices.getFirst().kind() == Device.Kind.CUDA;
        CopyProbe copies = new CopyProbe(devices);
        int rest = 2 + (cuda ? devices.size() * (devices.size() - 1) : 0);
        for (BandwidthCase c :
                List.of(
                        BandwidthCase.HOST_TO_DEVICE_LATENCY,
                        BandwidthCase.DEVICE_TO_HOST_LATENCY)) {
            for (ProbeResult.Copy copy : copies.measure(c, BYTES, budget.share(rest))) {
                rows.add(row(copy.from(), copy.to(), "a copy of 8 bytes", copy.outcome(), 1));
            }
            rest--;
        }
        for (Device from : cuda ? devices : List.<Device>of()) {
            for (Device to : devices) {
                if (from != to) {
                    rows.add(peers(from, to, budget.share(rest--)));
                }
            }
        }
        return rows;
    }

    private static ProbeResult.Latency peers(Device from, Device to, double share) {
        Outcome outcome;
        try {
            boolean direct = Cuda.canAccessPeer(from, to);
            if (direct) {
                Cuda.enablePeerAccess(from, to);
            }
            try (Buffer a = from.allocate(DataType.UINT8, BYTES);
                    Buffer b = to.allocate(DataType.UINT8, BYTES)) {
                byte[] sent = {1, 2, 3, 4, 5, 6, 7, 8};
                byte[] found = new byte[BYTES];
                a.copyFrom(MemorySegment.ofArray(sent));
                Stream stream = from.defaultStream();
                Timing timing =
                        Meter.measure(
                                times -> {
                                    for (int i = 0; i < times; i++) {
                                        stream.copy(a, b);
                                        stream.synchronize();
                                    }
                                },
                                share);
                b.copyTo(MemorySegment.ofArray(found));
                outcome =
                        Arrays.equals(sent, found)
                                ? Outcome.measured(timing)
                                : Outcome.wrong("the copy is " + Arrays.toString(found));
                if (!direct && !outcome.isBad()) {
                    outcome = outcome.withNote("no peer access: through the host");
                }
            }
        } catch (JcclException e) {
            outcome = Outcome.failed(e);
        }
        return row(CopyProbe.name(from), CopyProbe.name(to), "a copy of 8 bytes", outcome, 1);
    }
}

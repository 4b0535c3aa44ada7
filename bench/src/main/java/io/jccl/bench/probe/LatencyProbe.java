package io.jccl.bench.probe;

import io.jccl.bench.BandwidthCase;
import io.jccl.bindings.internal.ThreadAffinity;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Cpus;
import io.jccl.topology.read.Cpu;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/** Latency of a cache line between cores, and of a few bytes between devices. */
final class LatencyProbe {
    private static final int BYTES = 8;

    /** Index of the cell, surrounded by unused memory. */
    private static final int CELL = 32;

    private static final int STOP = -1;

    /** After this many spins the other thread evidently shares the core. */
    private static final int SPINS = 10_000;

    /** Two threads that exchange messages through one cache line. */
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

        /** Waits; returns whether the value arrived. */
        private boolean await(int value) {
            for (int spin = 0; ; spin++) {
                int found = cell.getAcquire(CELL);
                if (found == value || found == STOP) {
                    return found == value;
                }
                if (spin < SPINS) {
                    Thread.onSpinWait();
                } else {
                    // The measuring thread waits for even values: only its spins count.
                    yields += value % 2 == 0 ? 1 : 0;
                    Thread.yield();
                }
            }
        }

        /** The error in the last message; null if none. */
        @Nullable String wrong() {
            int found = cell.getAcquire(CELL);
            return found == sent ? null : "the cell holds " + found + ", expected " + sent;
        }
    }

    /** Two CPUs and their relation. */
    private record Pair(Cpu from, Cpu to, String relation) {}

    /** One pair of each kind that this process may use, nearest first. */
    private static List<Pair> pairs() {
        BitSet allowed = Cpus.ofProcess();
        List<Cpu> cpus = Cpus.all().stream().filter(c -> allowed.get(c.id())).toList();
        Map<String, Pair> kinds = new TreeMap<>();
        for (int i = 1; i < cpus.size(); i++) {
            Cpu from = cpus.getFirst();
            Cpu to = cpus.get(i);
            String relation =
                    from.core() == to.core()
                            ? "1 two threads of a core"
                            : from.l3() >= 0 && from.l3() == to.l3()
                                    ? "2 cores that share a level 3 cache"
                                    : from.numa() == to.numa()
                                            ? "3 cores of a NUMA node"
                                            : "4 cores of two NUMA nodes";
            kinds.putIfAbsent(relation, new Pair(from, to, relation.substring(2)));
        }
        return List.copyOf(kinds.values());
    }

    /**
     * Between CPUs: one pair of each existing kind, with threads bound to the CPUs; if threads
     * cannot be bound, between two unbound threads.
     */
    List<ProbeResult.Latency> cores(double seconds) {
        List<Pair> pairs = ThreadAffinity.isAvailable() ? pairs() : List.of();
        List<ProbeResult.Latency> rows = new ArrayList<>();
        for (Pair p : pairs) {
            rows.add(
                    between(
                            "CPU " + p.from.id(),
                            "CPU " + p.to.id(),
                            "a cache line, " + p.relation,
                            seconds / pairs.size(),
                            () -> bind(p.from),
                            () -> bind(p.to)));
        }
        if (rows.isEmpty()) {
            String how = "a cache line, threads unbound";
            rows.add(
                    Runtime.getRuntime().availableProcessors() < 2
                            ? row(
                                    "core",
                                    "core",
                                    how,
                                    Outcome.lacking("this process may use one CPU"),
                                    1)
                            : between("core", "core", how, seconds, () -> {}, () -> {}));
        }
        return rows;
    }

    private static void bind(Cpu cpu) {
        BitSet one = new BitSet();
        one.set(cpu.id());
        ThreadAffinity.set(one);
    }

    private static ProbeResult.Latency between(
            String from, String to, String how, double seconds, Runnable here, Runnable there) {
        PingPong pair = new PingPong();
        Thread echo =
                Thread.ofPlatform()
                        .daemon()
                        .name("jccl-probe-echo")
                        .start(() -> {
                            there.run();
                            pair.echo();
                        });
        AtomicReference<Outcome> result = new AtomicReference<>();
        Thread run =
                Thread.ofPlatform()
                        .daemon()
                        .name("jccl-probe-ping")
                        .start(() -> {
                            try {
                                here.run();
                                result.set(measured(pair, seconds));
                            } finally {
                                pair.cell.set(CELL, STOP);
                            }
                        });
        joined(run);
        joined(echo);
        Outcome outcome =
                Objects.requireNonNullElseGet(
                        result.get(), () -> Outcome.lacking("its thread ended with an error"));
        // A round trip.
        return row(from, to, how, outcome, 2);
    }

    private static Outcome measured(PingPong pair, double seconds) {
        Timing timing = Meter.measure(pair::run, seconds);
        String wrong = pair.wrong();
        if (wrong != null) {
            return Outcome.wrong(wrong);
        }
        Outcome outcome = Outcome.measured(timing);
        return pair.yields == 0
                ? outcome
                : outcome.withNote(
                        "the threads had to share a core: not a cache line's latency alone");
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

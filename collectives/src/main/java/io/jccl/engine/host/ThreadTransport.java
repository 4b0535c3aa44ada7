package io.jccl.engine.host;

import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/** Ranks as threads of this JVM: buffers are directly visible. */
final class ThreadTransport extends SharedMemoryTransport {
    private final Arena arena;
    private final String id;

    /** Room around what a rank writes: other ranks' words must not share its cache lines. */
    private static final int PAD = 32;

    /**
     * The segments that each rank has published: its send buffers, its receive buffers, those of
     * messages.
     */
    private final @Nullable MemorySegment[][] published;

    private final MemorySegment[] scratch;
    private final AtomicInteger left = new AtomicInteger();
    private final ConcurrentHashMap<String, ThreadTransport> children = new ConcurrentHashMap<>();

    /** Whether the arena closes itself. */
    private final boolean collected;

    /** Ranks that have not joined a transport that {@link #shrink} creates. */
    private final CountDownLatch came;

    ThreadTransport(int ranks) {
        this(
                ranks,
                Arena.ofShared(),
                false,
                Long.toHexString(ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE)) + "/0");
    }

    private ThreadTransport(int ranks, Arena arena, boolean collected, String id) {
        super(new ControlBlock(arena.allocate(ControlBlock.size(ranks), 128), ranks));
        this.arena = arena;
        this.id = id;
        this.came = new CountDownLatch(ranks);
        this.collected = collected;
        published = new MemorySegment[ranks][2 * PAD + 4 + ranks * ControlBlock.CELLS];
        scratch = new MemorySegment[ranks];
        for (int r = 0; r < ranks; r++) {
            scratch[r] = arena.allocate(SCRATCH, 4096);
        }
    }

    private static int place(int parity, boolean recv) {
        return PAD + (recv ? 2 : 0) + parity;
    }

    private static int cellPlace(int target, int cell) {
        return PAD + 4 + target * ControlBlock.CELLS + cell;
    }

    private static MemorySegment present(@Nullable MemorySegment s) {
        if (s == null) {
            throw new IllegalStateException("a rank published no buffer; this is a bug in JCCL");
        }
        return s;
    }

    @Override
    int publish(int rank, int parity, boolean recv, HostBuffer buffer) {
        published[rank][place(parity, recv)] = buffer.segment();
        return 0;
    }

    @Override
    long offset(HostBuffer buffer) {
        return 0;
    }

    @Override
    MemorySegment published(int rank, int parity, boolean recv, long chunk) {
        return present(published[rank][place(parity, recv)]);
    }

    @Override
    int publishCell(int source, int target, int cell, HostBuffer buffer) {
        published[source][cellPlace(target, cell)] = buffer.segment();
        return 0;
    }

    @Override
    MemorySegment publishedCell(int source, int target, int cell, long chunk) {
        return present(published[source][cellPlace(target, cell)]);
    }

    @Override
    MemorySegment scratch(int rank) {
        return scratch[rank];
    }

    @Override
    long scratchAt(int rank) {
        return 0;
    }

    @Override
    HostBuffer staging(long bytes) {
        throw new IllegalStateException("threads stage nothing; this is a bug in JCCL");
    }

    @Override
    boolean isAlive(int rank) {
        return true;
    }

    @Override
    String nameOf(int rank) {
        return "rank " + rank;
    }

    @Override
    HostPlan plan() {
        return HostPlan.FLAT;
    }

    @Override
    HostDevice device() {
        return HostDevice.local();
    }

    @Override
    String engine() {
        return "host/threads";
    }

    @Override
    boolean isOneProcess() {
        return true;
    }

    @Override
    String id() {
        return id;
    }

    @Override
    SharedMemoryTransport split(
            int rank, long number, int colour, int[] members, Runnable barrier) {
        String key = number + "/" + colour;
        ThreadTransport child =
                children.computeIfAbsent(
                        key,
                        k ->
                                new ThreadTransport(
                                        members.length,
                                        Arena.ofShared(),
                                        false,
                                        id + "." + number + "." + colour));
        boolean met = false;
        try {
            barrier.run();
            barrier.run();
            met = true;
        } finally {
            if (!met) {
                // It stays among the children: a rank that comes later has to leave it as well.
                child.leave(rank);
            }
        }
        children.remove(key);
        return child;
    }

    @Override
    SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout) {
        String key = "shrink " + Arrays.toString(members);
        ThreadTransport child =
                children.computeIfAbsent(
                        key,
                        k ->
                                // Some may never join, and then no rank can close it.
                                new ThreadTransport(
                                        members.length,
                                        Arena.ofAuto(),
                                        true,
                                        id + ".s" + Integer.toHexString(key.hashCode())));
        try (Regroup meeting = new Regroup(this, rank, members, timeout)) {
            meeting.threads(child.came, child.control);
        } finally {
            // A rank that joins after another has given up finds no others here.
            children.remove(key, child);
        }
        return child;
    }

    @Override
    void leave(int rank) {
        if (left.incrementAndGet() == ranks && !collected) {
            arena.close();
        }
    }
}

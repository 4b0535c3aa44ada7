package io.jccl.engine.host;

import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.bootstrap.LocalProcessGroup;
import io.jccl.device.DataType;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import io.jccl.error.JcclException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.NoSuchFileException;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * The memory that the ranks of one communicator share: the control block and access to each other's
 * buffers.
 */
abstract sealed class SharedMemoryTransport
        permits SharedMemoryTransport.Threads, SharedMemoryTransport.Processes {
    /** Scratch memory of each rank, for foreign buffers and for forwarding algorithms. */
    static final long SCRATCH = 1L << 20;

    final ControlBlock control;
    final int ranks;

    SharedMemoryTransport(ControlBlock control) {
        this.control = control;
        this.ranks = control.ranks;
    }

    /**
     * Makes a buffer visible to the other ranks; {@link HostBuffer#PRIVATE} if that is impossible.
     */
    abstract int publish(int rank, int parity, boolean recv, HostBuffer buffer);

    /** Offset of a published buffer in its segment. */
    abstract long offset(HostBuffer buffer);

    /** The segment that contains a rank's published buffer. */
    abstract MemorySegment published(int rank, int parity, boolean recv, long chunk);

    /** Makes a buffer of a message visible to its receiver. */
    abstract int publishCell(int source, int target, int cell, HostBuffer buffer);

    abstract MemorySegment publishedCell(int source, int target, int cell, long chunk);

    /** A rank's scratch memory, {@link #SCRATCH} bytes from {@link #scratchAt}. */
    abstract MemorySegment scratch(int rank);

    abstract long scratchAt(int rank);

    /** Memory for messages of foreign buffers from one rank. */
    abstract HostBuffer staging(long bytes);

    /** Whether a rank is alive. */
    abstract boolean isAlive(int rank);

    /** Name of a rank in messages. */
    abstract String nameOf(int rank);

    /** The plan for the ranks' placement, once all have joined. */
    abstract HostPlan plan();

    abstract HostDevice device();

    abstract String engine();

    /** Whether all ranks end together. */
    abstract boolean isOneProcess();

    /** Identifies these ranks among those of all communicators and jobs. */
    abstract String id();

    /**
     * The transport of a subset of these ranks, which all call it with equal arguments. It runs a
     * barrier of all ranks exactly twice.
     */
    abstract SharedMemoryTransport split(
            int rank, long number, int colour, int[] members, Runnable barrier);

    /**
     * The transport of the remaining ranks, which all call it with equal arguments. It does not use
     * the memory of this one, which a dead rank may have left in any state.
     *
     * @param own this rank's index among them
     */
    abstract SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout);

    /** One rank leaves; the last one releases what they share. */
    abstract void leave(int rank);

    /** Ranks as threads of this JVM: buffers are directly visible. */
    static final class Threads extends SharedMemoryTransport {
        private final Arena arena;
        private final String id;

        /** Room around what a rank writes: other ranks' words must not share its cache lines. */
        private static final int PAD = 32;

        /**
         * The segments that each rank has published: its send buffers, its receive buffers, those
         * of messages.
         */
        private final @Nullable MemorySegment[][] published;

        private final MemorySegment[] scratch;
        private final AtomicInteger left = new AtomicInteger();
        private final ConcurrentHashMap<String, Threads> children = new ConcurrentHashMap<>();

        /** Whether the arena closes itself. */
        private final boolean collected;

        /** Ranks that have not joined a transport that {@link #shrink} creates. */
        private final CountDownLatch came;

        Threads(int ranks) {
            this(
                    ranks,
                    Arena.ofShared(),
                    false,
                    Long.toHexString(ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE))
                            + "/0");
        }

        private Threads(int ranks, Arena arena, boolean collected, String id) {
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
                throw new IllegalStateException(
                        "a rank published no buffer; this is a bug in JCCL");
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
            Threads child =
                    children.computeIfAbsent(
                            key,
                            k ->
                                    new Threads(
                                            members.length,
                                            Arena.ofShared(),
                                            false,
                                            id + "." + number + "." + colour));
            barrier.run();
            barrier.run();
            children.remove(key);
            return child;
        }

        @Override
        SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout) {
            String key = "shrink " + Arrays.toString(members);
            Threads child =
                    children.computeIfAbsent(
                            key,
                            k ->
                                    // Some may never come, and then no rank can close it.
                                    new Threads(
                                            members.length,
                                            Arena.ofAuto(),
                                            true,
                                            id + ".s" + Integer.toHexString(key.hashCode())));
            try (Regroup meeting = new Regroup(rank, timeout)) {
                meeting.threads(child.came, child.control, own);
            } finally {
                // A rank that comes after one has given up finds no others here.
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

    /** Ranks as processes: only memory of their shared heaps is visible. */
    static final class Processes extends SharedMemoryTransport {
        private final LocalProcessGroup job;
        private final Arena arena;

        /** Distinguishes the communicators of a job; "0" is the first. */
        private final String name;

        /** Rank in the job, by rank in this communicator. */
        private final int[] members;

        private final int rank;

        /** Placement of this rank when it joined the job. */
        private final long home;

        private final HostBuffer ownScratch;
        private final @Nullable MemorySegment[] scratch;

        Processes(
                LocalProcessGroup job,
                ControlBlock control,
                Arena arena,
                String name,
                int[] members,
                int rank,
                long home) {
            super(control);
            this.job = job;
            this.arena = arena;
            this.name = name;
            this.members = members;
            this.rank = rank;
            this.home = home;
            this.scratch = new MemorySegment[ranks];
            ownScratch = staging(SCRATCH);
            long state = control.state(rank);
            control.set(state + ControlBlock.SCRATCH_CHUNK, ownScratch.chunk());
            control.set(state + ControlBlock.SCRATCH_AT, ownScratch.chunkAt());
            control.set(state + ControlBlock.PID, ProcessHandle.current().pid());
            control.set(state + ControlBlock.HOME, home);
            job.retain();
        }

        @Override
        int publish(int rank, int parity, boolean recv, HostBuffer buffer) {
            return buffer.device() == job.device() ? buffer.chunk() : HostBuffer.PRIVATE;
        }

        @Override
        long offset(HostBuffer buffer) {
            return buffer.chunkAt();
        }

        @Override
        MemorySegment published(int rank, int parity, boolean recv, long chunk) {
            return chunk(rank, (int) chunk);
        }

        private MemorySegment chunk(int r, int chunk) {
            MemorySegment known = job.chunk(members[r], chunk);
            return known != null ? known : map(r, chunk);
        }

        /**
         * Maps memory for the first time. If this process was stopped for long, its peer may have
         * given up and left, and may even have joined the next run with a file of the same name.
         */
        private MemorySegment map(int r, int chunk) {
            MemorySegment mapped = null;
            UncheckedIOException missing = null;
            try {
                mapped = job.map(members[r], chunk);
            } catch (UncheckedIOException e) {
                if (!(e.getCause() instanceof NoSuchFileException)) {
                    throw e;
                }
                missing = e;
            }
            if (mapped != null && !control.aborted()) {
                return mapped;
            }
            JcclException gone =
                    control.aborted()
                            ? control.ended()
                            : new RankFailedException(
                                    nameOf(r) + " has left while rank " + rank + " needs its data");
            if (missing != null) {
                gone.initCause(missing);
            }
            throw gone;
        }

        @Override
        int publishCell(int source, int target, int cell, HostBuffer buffer) {
            return publish(source, 0, false, buffer);
        }

        @Override
        MemorySegment publishedCell(int source, int target, int cell, long chunk) {
            return chunk(source, (int) chunk);
        }

        @Override
        MemorySegment scratch(int rank) {
            MemorySegment s = scratch[rank];
            if (s == null) {
                long chunk = control.get(control.state(rank) + ControlBlock.SCRATCH_CHUNK);
                s = chunk(rank, (int) chunk);
                scratch[rank] = s;
            }
            return s;
        }

        @Override
        long scratchAt(int rank) {
            return control.get(control.state(rank) + ControlBlock.SCRATCH_AT);
        }

        @Override
        HostBuffer staging(long bytes) {
            return (HostBuffer) job.device().allocate(DataType.UINT8, bytes);
        }

        @Override
        boolean isAlive(int rank) {
            return rank == this.rank || job.isAlive(members[rank]);
        }

        @Override
        String nameOf(int rank) {
            long pid = control.get(control.state(rank) + ControlBlock.PID);
            return "rank " + rank + (pid == 0 ? "" : " (process " + pid + ")");
        }

        @Override
        HostPlan plan() {
            long[] homes = new long[ranks];
            for (int r = 0; r < ranks; r++) {
                homes[r] = control.get(control.state(r) + ControlBlock.HOME);
            }
            return HostPlan.of(homes);
        }

        @Override
        HostDevice device() {
            return job.device();
        }

        @Override
        String engine() {
            return "host/processes";
        }

        @Override
        boolean isOneProcess() {
            return false;
        }

        @Override
        String id() {
            return Long.toHexString(job.nonce()) + "/" + name;
        }

        @Override
        SharedMemoryTransport split(
                int rank, long number, int colour, int[] members, Runnable barrier) {
            int[] jobRanks = new int[members.length];
            int own = 0;
            for (int i = 0; i < members.length; i++) {
                jobRanks[i] = this.members[members[i]];
                own = members[i] == rank ? i : own;
            }
            // Every member derives the same name, and no other communicator of the job has it.
            String childName = name + "." + number + "." + colour;
            String file = "ctl-" + childName;
            long bytes = ControlBlock.size(members.length);
            Arena childArena = Arena.ofShared();
            MemorySegment memory = null;
            if (own == 0) {
                memory = job.folder().create(file, bytes, childArena, "the control memory");
            }
            barrier.run();
            if (memory == null) {
                memory = job.folder().map(file, bytes, childArena);
            }
            ControlBlock childControl = new ControlBlock(memory, members.length);
            SharedMemoryTransport child =
                    new Processes(job, childControl, childArena, childName, jobRanks, own, home);
            barrier.run();
            if (own == 0) {
                job.folder().delete(file);
            }
            return child;
        }

        @Override
        SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout) {
            int[] jobRanks = Arrays.stream(members).map(m -> this.members[m]).toArray();
            String childName = name + ".s" + Integer.toHexString(Arrays.hashCode(jobRanks));
            try (Regroup meeting = new Regroup(rank, timeout)) {
                return meeting.processes(
                        job,
                        "ctl-" + childName,
                        own,
                        members,
                        this::isAlive,
                        (control, childArena) ->
                                new Processes(
                                        job, control, childArena, childName, jobRanks, own, home));
            }
        }

        @Override
        void leave(int rank) {
            ownScratch.close();
            arena.close();
            job.release();
        }
    }
}

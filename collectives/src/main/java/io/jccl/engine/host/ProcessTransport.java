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
import org.jspecify.annotations.Nullable;

/** Ranks as processes: only memory of their shared heaps is visible. */
final class ProcessTransport extends SharedMemoryTransport {
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

    ProcessTransport(
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
     * Maps memory for the first time. If this process was stopped for long, its peer may have given
     * up and left, and may even have joined the next run with a file of the same name.
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
    void unmapDeleted() {
        job.unmapDeleted();
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
        SharedMemoryTransport child = null;
        boolean met = false;
        try {
            MemorySegment memory = null;
            if (own == 0) {
                memory = job.folder().create(file, bytes, childArena, "the control memory");
            }
            barrier.run();
            if (memory == null) {
                memory = job.folder().map(file, bytes, childArena);
            }
            ControlBlock childControl = new ControlBlock(memory, members.length);
            child =
                    new ProcessTransport(
                            job, childControl, childArena, childName, jobRanks, own, home);
            barrier.run();
            met = true;
            return child;
        } finally {
            if (own == 0) {
                job.folder().delete(file);
            }
            if (!met && child != null) {
                child.leave(own);
            } else if (!met) {
                childArena.close();
            }
        }
    }

    @Override
    SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout) {
        int[] jobRanks = Arrays.stream(members).map(m -> this.members[m]).toArray();
        String childName = name + ".s" + Integer.toHexString(Arrays.hashCode(jobRanks));
        try (Regroup meeting = new Regroup(this, rank, members, timeout)) {
            return meeting.processes(
                    job,
                    "ctl-" + childName,
                    own,
                    (control, childArena) ->
                            new ProcessTransport(
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

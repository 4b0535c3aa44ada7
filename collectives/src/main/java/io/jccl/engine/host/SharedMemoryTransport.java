package io.jccl.engine.host;

import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/**
 * The memory that the ranks of one communicator share: the control block and access to each other's
 * buffers.
 */
abstract sealed class SharedMemoryTransport permits ThreadTransport, ProcessTransport {
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

    /** Gives up mappings of memory that other ranks have deleted, for want of space. */
    void unmapDeleted() {}

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
     * The transport of the remaining ranks, which all call it with equal arguments. Of the memory
     * of this one, which a dead rank may have left in any state, it reads the closed flags only.
     *
     * @param own this rank's index among them
     */
    abstract SharedMemoryTransport shrink(int rank, int[] members, int own, Duration timeout);

    /** One rank leaves; the last one releases what they share. */
    abstract void leave(int rank);
}

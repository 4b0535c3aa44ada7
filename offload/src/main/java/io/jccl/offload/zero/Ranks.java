package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * The stream of collectives, and votes of the ranks. Marks in the stream show whether work ran or
 * was dropped after an error: a dropped mark is never counted.
 */
final class Ranks {
    static final Duration FOREVER = Deadline.FOREVER;

    static final double FINE = 0;
    static final double FAILED = 1;
    static final double GRADIENTS_LOST = 2;

    /** What a rank reports in a vote: a number, and how it went. */
    private static final int VOTE = 2;

    final Stream stream;

    private final Communicator comm;
    private final int size;
    private final int rank;
    private final AtomicLong reached = new AtomicLong();
    private final Runnable reach = reached::incrementAndGet;
    private long marks;
    private final Buffer votes;
    private final Buffer myVote;

    /** In native memory, which GPUs copy from and to without a stage made for each copy. */
    private final Buffer mine;

    private final Buffer received;
    private @Nullable RuntimeException outOfStep;

    /** Sums over the ranks, if the optimizer needs them, and where they pass through. */
    private final @Nullable Buffer totals;

    private final MemorySegment stage;

    Ranks(ZeroConfig config, Memory memory) {
        this.comm = config.comm();
        this.size = config.size();
        this.rank = config.rank();
        this.stream = memory.own(config.device().newStream());
        this.votes = memory.own(config.device().allocate(DataType.FLOAT64, (long) VOTE * size));
        this.myVote = votes.slice((long) VOTE * rank, VOTE);
        this.mine = memory.own(Device.host().allocate(DataType.FLOAT64, VOTE));
        this.received = memory.own(Device.host().allocate(DataType.FLOAT64, votes.count()));
        int most = config.mostSums();
        this.totals =
                most == 0 ? null : memory.own(config.device().allocate(DataType.FLOAT64, most));
        this.stage = memory.own(Device.host().allocate(DataType.FLOAT64, most)).asSegment();
    }

    long mark() {
        stream.launchHostFunction(reach);
        return ++marks;
    }

    long mark(Event ready) {
        long mark = mark();
        ready.record(stream);
        return mark;
    }

    void await(long mark, Event ready) {
        ready.synchronize(FOREVER);
        if (reached.get() < mark) {
            drain();
        }
    }

    /** Waits for the stream; throws the communicator's error if there is one. */
    void drain() {
        stream.synchronize();
        if (reached.get() < marks) {
            throw new JcclException(
                    "the communicator of rank "
                            + rank
                            + " failed in an earlier operation: save what this rank holds with"
                            + " saveAlone, and start again with another communicator");
        }
    }

    /** Exchanges a number and a status with all ranks; {@link #number} has them then. */
    void vote(double number, double status) {
        if (outOfStep != null) {
            throw new JcclException(
                    ("rank %s is out of step with the others since it could not copy a vote: save"
                                    + " what it holds with saveAlone, and begin again: %s")
                            .formatted(rank, outOfStep.getMessage()),
                    outOfStep);
        }
        mine.set(0, number);
        mine.set(1, status);
        copy(false);
        comm.allGather(votes, stream);
        mark();
        drain();
        copy(true);
    }

    /**
     * Copies what is received or, before, what is sent; a second time if a GPU's copy fails, since
     * a rank that gives up here alone does not do what the others do next.
     */
    private void copy(boolean in) {
        for (int attempt = 0; ; attempt++) {
            try {
                if (in) {
                    votes.copyTo(received.asSegment());
                } else {
                    myVote.copyFrom(mine.asSegment());
                }
                return;
            } catch (RuntimeException e) {
                if (attempt > 0) {
                    outOfStep = e;
                    throw e;
                }
            }
        }
    }

    /** Adds up values over the ranks; waits for it. */
    void sum(MemorySegment values) {
        Buffer all = Objects.requireNonNull(totals);
        all.copyFrom(stage.copyFrom(values));
        comm.allReduce(all, ReduceOp.SUM, stream);
        mark();
        drain();
        all.copyTo(stage);
        values.copyFrom(stage);
    }

    /** As {@link #vote(double, double)}, of how it went alone. */
    void vote(boolean fine) {
        vote(0, fine ? FINE : FAILED);
    }

    /** A rank's number of the last vote. */
    double number(int r) {
        return received.get((long) VOTE * r);
    }

    /** The sum of all ranks' numbers, in rank order. */
    double sum() {
        double total = 0;
        for (int r = 0; r < size; r++) {
            total += number(r);
        }
        return total;
    }

    /** The worst status among the ranks. */
    double worst() {
        double w = FINE;
        for (int r = 0; r < size; r++) {
            w = Math.max(w, received.get((long) VOTE * r + 1));
        }
        return w;
    }

    String failedRanks() {
        List<Integer> failed = new ArrayList<>();
        for (int r = 0; r < size; r++) {
            if (received.get((long) VOTE * r + 1) != FINE) {
                failed.add(r);
            }
        }
        return (failed.size() == 1 ? "rank " + failed.getFirst() : "ranks " + failed);
    }

    /** This rank's own error, or one that names the others. */
    RuntimeException failed(@Nullable RuntimeException local, String what) {
        return local != null
                ? local
                : new JcclException(failedRanks() + " failed: " + what + "; see the error there");
    }
}

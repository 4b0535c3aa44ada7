package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.internal.Closing;
import java.util.List;

/** Combines one bucket's gradients over all ranks, to their mean unless documented otherwise. */
abstract sealed class Exchange implements AutoCloseable
        permits Exchange.Plain, Exchange.Cast, TopKExchange, PowerSgdExchange, AdasumExchange {
    final Communicator comm;
    final Buffer bucket;
    private final List<AutoCloseable> owned;

    /**
     * Creates an exchange.
     *
     * @param owned gets what the exchange closes, so that a constructor that fails leaves nothing
     */
    Exchange(Communicator comm, Buffer bucket, List<AutoCloseable> owned) {
        this.comm = comm;
        this.bucket = bucket;
        this.owned = owned;
    }

    final <T extends AutoCloseable> T own(T resource) {
        owned.add(resource);
        return resource;
    }

    final Buffer zeros(DataType type, long count) {
        return own(comm.device().allocate(type, count)).zero();
    }

    /** Enqueues the exchange; the bucket holds the mean once the stream has completed it. */
    abstract void enqueue(Stream stream);

    /** Bytes that this rank contributes to one exchange. */
    abstract long bytes();

    /** State that this rank keeps for its next exchange; see {@link GradientReducer#carried}. */
    List<Buffer> carried() {
        return List.of();
    }

    @Override
    public final void close() {
        Closing.all(owned.reversed());
    }

    /** Uncompressed gradients. */
    static final class Plain extends Exchange {
        Plain(Communicator comm, Buffer bucket) {
            super(comm, bucket, List.of());
        }

        @Override
        void enqueue(Stream stream) {
            comm.allReduce(bucket, ReduceOp.AVG, stream);
        }

        @Override
        long bytes() {
            return bucket.byteSize();
        }
    }

    /**
     * Gradients rounded to a narrow type. The host's engines add narrow types in float32 and round
     * once, so averaging narrow values meets the contract of {@link Compression.Cast}. Dividing a
     * sum here would not be more accurate and could overflow in float16.
     */
    static final class Cast extends Exchange {
        private final Buffer wire;

        private final Compute compute;

        Cast(
                Communicator comm,
                Compute compute,
                Buffer bucket,
                DataType type,
                List<AutoCloseable> owned) {
            super(comm, bucket, owned);
            this.compute = compute;
            wire = own(comm.device().allocate(type, bucket.count()));
        }

        @Override
        void enqueue(Stream stream) {
            compute.cast(bucket, wire, stream);
            comm.allReduce(wire, ReduceOp.AVG, stream);
            compute.cast(wire, bucket, stream);
        }

        @Override
        long bytes() {
            return wire.byteSize();
        }
    }
}

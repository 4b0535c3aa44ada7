package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** Combines one bucket's gradients over all ranks, to their mean unless documented otherwise. */
abstract sealed class Exchange implements AutoCloseable
        permits Exchange.Plain,
                Exchange.Cast,
                Exchange.DeviceCast,
                TopKExchange,
                PowerSgdExchange,
                DevicePowerSgdExchange,
                AdasumExchange {
    /** Enqueues the exchange; the bucket holds the mean once the stream has completed it. */
    abstract void enqueue(Stream stream);

    /** Bytes that this rank contributes to one exchange. */
    abstract long bytes();

    /** State that this rank keeps for its next exchange; see {@link GradientReducer#carried}. */
    List<Buffer> carried() {
        return List.of();
    }

    @Override
    public void close() {}

    /** Uncompressed gradients. */
    static final class Plain extends Exchange {
        private final Communicator c;
        private final Buffer bucket;

        Plain(Communicator c, Buffer bucket) {
            this.c = c;
            this.bucket = bucket;
        }

        @Override
        void enqueue(Stream stream) {
            c.allReduce(bucket, ReduceOp.AVG, stream);
        }

        @Override
        long bytes() {
            return bucket.byteSize();
        }
    }

    /**
     * Gradients rounded to a narrow type, on the host. Its engines add narrow types in float32 and
     * round once, so averaging narrow values meets the contract of {@link Compression.Cast}.
     * Dividing a sum here would not be more accurate and could overflow in float16.
     */
    static final class Cast extends Exchange {
        private final Communicator c;
        private final Buffer bucket;
        private final Buffer wire;
        private final Reducer codec;
        private final Runnable narrow = this::narrow;
        private final Runnable widen = this::widen;

        Cast(Communicator c, Buffer bucket, DataType type) {
            this.c = c;
            this.bucket = bucket;
            this.wire = c.device().allocate(type, bucket.count());
            // A reducer for one rank: it only converts types; the engine adds.
            this.codec = new Reducer(1).begin(type, ReduceOp.Kind.SUM);
        }

        @Override
        void enqueue(Stream stream) {
            stream.launchHostFunction(narrow);
            c.allReduce(wire, ReduceOp.AVG, stream);
            stream.launchHostFunction(widen);
        }

        private void narrow() {
            MemorySegment to = wire.asSegment();
            codec.store(bucket.asSegment(), 0, to, 0, bucket.count());
        }

        private void widen() {
            codec.load(wire.asSegment(), 0, 0, bucket.asSegment(), 0, bucket.count());
        }

        @Override
        long bytes() {
            return wire.byteSize();
        }

        @Override
        public void close() {
            wire.close();
        }
    }

    /** The same on a GPU, by kernels. */
    static final class DeviceCast extends Exchange {
        private final Communicator c;
        private final Compute compute;
        private final Buffer bucket;
        private final Buffer wire;

        DeviceCast(Communicator c, Compute compute, Buffer bucket, DataType type) {
            this.c = c;
            this.compute = compute;
            this.bucket = bucket;
            this.wire = c.device().allocate(type, bucket.count());
        }

        @Override
        void enqueue(Stream stream) {
            compute.cast(bucket, wire, stream);
            c.allReduce(wire, ReduceOp.AVG, stream);
            compute.cast(wire, bucket, stream);
        }

        @Override
        long bytes() {
            return wire.byteSize();
        }

        @Override
        public void close() {
            wire.close();
        }
    }
}

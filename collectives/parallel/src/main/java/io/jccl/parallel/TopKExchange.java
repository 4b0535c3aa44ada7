package io.jccl.parallel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.compute.GradientCompression;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.kernel.LargestSelection;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Sends only the elements of largest magnitude; the rest is kept for the next step. On a GPU
 * kernels do all of it, bitwise equal to the host.
 */
final class TopKExchange extends Exchange {
    private final int count;
    private final int k;

    /** Elements not sent so far, plus this step's gradient. */
    private final Buffer residual;

    /** Indices, then values as raw bits: one collective for both. */
    private final Buffer send;

    private final Buffer recv;

    /** What each rank sent. */
    private final Buffer[] sent;

    // On the host.
    private final LargestSelection selection = new LargestSelection();
    private final Runnable select = this::select;
    private final Runnable add = this::add;

    // On a GPU; null on the host.
    private final @Nullable Compute compute;
    private final @Nullable Buffer scratch;

    /**
     * Creates an exchange.
     *
     * @param elements of the bucket, without padding
     */
    TopKExchange(
            Communicator comm,
            @Nullable Compute compute,
            Buffer bucket,
            long elements,
            double density,
            List<AutoCloseable> owned) {
        super(comm, bucket, owned);
        this.compute = compute;
        count = Math.toIntExact(bucket.count());
        k = (int) Math.clamp((long) Math.ceil(density * elements), 1, elements);
        residual = zeros(DataType.FLOAT32, count);
        send = zeros(DataType.INT32, 2L * k);
        recv = zeros(DataType.INT32, 2L * k * comm.size());
        scratch =
                compute == null
                        ? null
                        : zeros(DataType.INT32, GradientCompression.SELECTION_SCRATCH);
        sent = new Buffer[comm.size()];
        for (int r = 0; r < sent.length; r++) {
            sent[r] = recv.slice(2L * k * r, 2L * k);
        }
    }

    @Override
    void enqueue(Stream stream) {
        if (compute == null || scratch == null) {
            stream.launchHostFunction(select);
            comm.allGather(send, recv, stream);
            stream.launchHostFunction(add);
            return;
        }
        compute.axpy(1, bucket, residual, stream);
        compute.compression().selectLargest(residual, send, scratch, stream);
        comm.allGather(send, recv, stream);
        compute.fill(bucket, 0, stream);
        for (Buffer one : sent) {
            compute.compression().addSelection(one, bucket, stream);
        }
        if (sent.length > 1) {
            compute.divide(bucket, sent.length, bucket, stream);
        }
    }

    private void select() {
        selection.select(residual.asSegment(), bucket.asSegment(), count, k, send.asSegment());
    }

    /** Adds the elements of all ranks in rank order, so that all ranks get identical bits. */
    private void add() {
        MemorySegment gradient = bucket.asSegment();
        MemorySegment in = recv.asSegment();
        gradient.fill((byte) 0);
        int ranks = sent.length;
        for (int r = 0; r < ranks; r++) {
            LargestSelection.add(in, 2L * k * r, k, gradient, count);
        }
        if (ranks > 1) {
            for (int i = 0; i < count; i++) {
                gradient.setAtIndex(JAVA_FLOAT, i, gradient.getAtIndex(JAVA_FLOAT, i) / ranks);
            }
        }
    }

    @Override
    long bytes() {
        return send.byteSize();
    }

    @Override
    List<Buffer> carried() {
        return List.of(residual);
    }
}

package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The part of a model that one rank of a {@link Pipeline} computes.
 *
 * <p>The buffers are the pipeline's. A micro-batch has the same ones at every run: views of them
 * may be made once per micro-batch. The input stays until the micro-batch has gone backward; the
 * others are overwritten by later micro-batches in the same direction. Whatever else backward
 * needs, the stage keeps, in slot {@code microBatch % pipeline.slots()} for example.
 *
 * <p><b>Threads:</b> called by the thread that runs the pipeline.
 */
public interface PipelineStage {
    /**
     * Enqueues the computation of a micro-batch's output.
     *
     * @param microBatch 0 to the number of micro-batches - 1, in this order
     * @param input what the stage before computed; null on the first, which has its own input
     * @param output for the next stage; null on the last, which computes the loss
     * @param stream where to enqueue
     */
    void forward(int microBatch, @Nullable Buffer input, @Nullable Buffer output, Stream stream);

    /**
     * Enqueues the computation of a micro-batch's gradients; those of parameters are added up.
     *
     * @param microBatch 0 to the number of micro-batches - 1, in this order
     * @param outputGradient from the next stage; null on the last
     * @param inputGradient for the stage before; null on the first
     * @param stream where to enqueue
     */
    void backward(
            int microBatch,
            @Nullable Buffer outputGradient,
            @Nullable Buffer inputGradient,
            Stream stream);
}

package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The part of a model that one rank of a {@link Pipeline} computes.
 *
 * <p>The pipeline owns the buffers. A micro-batch has the same ones in every run, so views of them
 * may be created once per micro-batch. The input is kept until the backward pass of the
 * micro-batch; the other buffers are overwritten by later micro-batches in the same direction. The
 * stage itself keeps whatever else the backward pass needs, for example in slot {@code microBatch %
 * pipeline.slots()}.
 *
 * {@snippet class="snippets.Parallel" region="stage"}
 *
 * <p><b>Threads:</b> called by the thread that runs the pipeline.
 */
public interface PipelineStage {
    /**
     * Enqueues the computation of a micro-batch's output.
     *
     * @param microBatch 0 to the number of micro-batches - 1, in this order
     * @param input output of the previous stage; null on the first stage, which has its own input
     * @param output input of the next stage; null on the last stage, which computes the loss
     * @param stream where to enqueue
     */
    void forward(int microBatch, @Nullable Buffer input, @Nullable Buffer output, Stream stream);

    /**
     * Enqueues the computation of a micro-batch's gradients; those of parameters are accumulated.
     *
     * @param microBatch 0 to the number of micro-batches - 1, in this order
     * @param outputGradient gradient of the output, from the next stage; null on the last stage
     * @param inputGradient gradient of the input, for the previous stage; null on the first stage
     * @param stream where to enqueue
     */
    void backward(
            int microBatch,
            @Nullable Buffer outputGradient,
            @Nullable Buffer inputGradient,
            Stream stream);
}

/**
 * Optimizers that run on the CPU, on float32 state in host memory.
 *
 * <p>An {@link io.jccl.offload.optim.Optimizer} is a rule and its hyper-parameters; an {@link
 * io.jccl.offload.optim.OptimizerState} is the memory it works on; {@link
 * io.jccl.offload.optim.Workers} are the threads. {@link io.jccl.offload.optim.CheckedStep} puts
 * them together with a check for infinities, unscaling and clipping.
 */
@NullMarked
package io.jccl.offload.optim;

import org.jspecify.annotations.NullMarked;

package io.jccl.offload.zero;

/**
 * How a step ended; the same on all ranks.
 *
 * @param taken whether parameters were updated; false if a gradient was infinite or not a number
 * @param gradientNorm Euclidean norm of all gradients, averaged over ranks and micro-steps, without
 *     loss scale and before clipping; not finite if a gradient was not
 * @param lossScale what the loss is to be multiplied by in the next step
 */
public record StepResult(boolean taken, double gradientNorm, double lossScale) {}

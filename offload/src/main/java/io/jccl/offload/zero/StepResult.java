package io.jccl.offload.zero;

/**
 * The result of a step; the same on all ranks.
 *
 * @param taken whether parameters were updated; false if a gradient was infinite or not a number
 * @param gradientNorm Euclidean norm of all gradients, averaged over ranks and micro-steps, without
 *     loss scale and before clipping; infinite or NaN if a gradient was infinite or NaN
 * @param lossScale factor for the loss in the next step
 */
public record StepResult(boolean taken, double gradientNorm, double lossScale) {}

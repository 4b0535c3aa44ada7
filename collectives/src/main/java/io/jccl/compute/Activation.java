package io.jccl.compute;

/** A function of each element. */
public enum Activation {
    /** {@code x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2}, arXiv 1606.08415. */
    GELU,
    /** The square of elements above 0, 0 for others; arXiv 2109.08668. */
    RELU_SQUARED
}

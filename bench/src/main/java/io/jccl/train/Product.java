package io.jccl.train;

/**
 * A product with a weight matrix, {@code y = x w}, on buffers that are fixed when it is created.
 */
interface Product {
    /** Computes y. */
    void forward();

    /** Computes the gradient of x and adds to the gradient of w. */
    void backward();
}

package io.jccl.train;

/** A product with a weight matrix, {@code y = x w}, tied to its buffers when it is made. */
interface Product {
    /** Sets y. */
    void forward();

    /** Sets x's gradient, and adds to w's. */
    void backward();
}

package io.jccl.offload.timeplan;

/**
 * Rates that one rank's device and its share of the machine achieve in training, not data sheet
 * values.
 *
 * @param peak TFLOP/s that utilization refers to
 * @param products TFLOP/s of products with the layers' matrices
 * @param wide TFLOP/s of the other products, whose operands are not narrowed
 * @param attention TFLOP/s of flash attention, including hidden scores; 0 if it computes as
 *     products
 * @param elementwise GB/s in the parts between the matrices; infinite if the rate of products
 *     includes them
 * @param memory GB/s of device memory in the optimizer
 * @param pcie GB/s between device and host, one way
 * @param host GB/s of host memory that a rank's optimizer on the CPU reaches
 * @param nvmeRead GB/s of drives for a rank
 * @param nvmeWrite the same, writing
 */
public record Rates(
        double peak,
        double products,
        double wide,
        double attention,
        double elementwise,
        double memory,
        double pcie,
        double host,
        double nvmeRead,
        double nvmeWrite) {}

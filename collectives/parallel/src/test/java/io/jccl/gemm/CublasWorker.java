package io.jccl.gemm;

import io.jccl.device.Cuda;

/** A process that sets up products on a GPU, and says what it is told. */
final class CublasWorker {
    private CublasWorker() {}

    /**
     * Runs it.
     *
     * @param args not used
     */
    public static void main(String[] args) {
        try (Matmul matmul = Matmul.of(Cuda.device(0), 1)) {
            System.out.println("made " + matmul);
        } catch (RuntimeException e) {
            System.out.println(e.toString().replace('\n', ' '));
        }
    }
}

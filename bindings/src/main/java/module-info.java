/** Foreign function bindings to NCCL, the CUDA runtime, cuBLAS and MPI. */
module io.jccl.bindings {
    requires static transitive org.jspecify;

    exports io.jccl.bindings;
}

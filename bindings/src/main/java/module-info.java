/** Foreign function bindings to NCCL, the CUDA runtime and driver, cuBLAS and MPI. */
@SuppressWarnings("module") // the modules that may see generated code are compiled later
module io.jccl.bindings {
    requires static org.jspecify;

    exports io.jccl.bindings;
    exports io.jccl.error;
    exports io.jccl.bindings.internal to
            io.jccl.bench,
            io.jccl.collectives,
            io.jccl.offload;
    exports io.jccl.bindings.generated.cublas to
            io.jccl.bench,
            io.jccl.parallel;
    exports io.jccl.bindings.generated.cuda to
            io.jccl.collectives;
    exports io.jccl.bindings.generated.cudart to
            io.jccl.bench,
            io.jccl.collectives;
    exports io.jccl.bindings.generated.nccl to
            io.jccl.collectives;
}

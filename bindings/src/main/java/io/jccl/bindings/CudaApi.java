package io.jccl.bindings;

/** The functions of the CUDA runtime. */
public interface CudaApi extends NativeApi {}

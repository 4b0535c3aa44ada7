package io.jccl.bindings;

/** The functions of cuBLAS. */
public interface CublasApi extends NativeApi {}

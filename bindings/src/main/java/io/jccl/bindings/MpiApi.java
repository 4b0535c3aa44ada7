package io.jccl.bindings;

/** The functions of MPI. */
public interface MpiApi extends NativeApi {}

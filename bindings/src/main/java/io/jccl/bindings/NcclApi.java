package io.jccl.bindings;

/** The functions of NCCL. */
public interface NcclApi extends NativeApi {}

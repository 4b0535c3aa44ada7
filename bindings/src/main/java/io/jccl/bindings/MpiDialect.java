package io.jccl.bindings;

/** The binary interface of an MPI call table's library. */
interface MpiDialect extends NativeApi {
    /**
     * The library's binary interface.
     *
     * @return the interface, recognized when the library was loaded
     */
    MpiAbi abi();
}

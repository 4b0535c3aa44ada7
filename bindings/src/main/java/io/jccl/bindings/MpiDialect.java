package io.jccl.bindings;

/** What a call table of MPI knows of its library's binary interface. */
interface MpiDialect extends NativeApi {
    /**
     * The library's binary interface.
     *
     * @return which one, recognized when the library was loaded
     */
    MpiAbi abi();
}

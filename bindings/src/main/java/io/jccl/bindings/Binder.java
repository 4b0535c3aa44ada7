package io.jccl.bindings;

import java.lang.foreign.SymbolLookup;

/** Makes call tables. */
final class Binder {
    private Binder() {}

    /**
     * Binds an interface to a library.
     *
     * @param api an interface with one method per C function
     * @param loaded the library
     * @param symbols its symbols
     * @return the table
     */
    static <T extends NativeApi> T bind(Class<T> api, LoadedLibrary loaded, SymbolLookup symbols) {
        throw new UnsupportedOperationException("being written");
    }
}

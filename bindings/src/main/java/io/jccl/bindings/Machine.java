package io.jccl.bindings;

import java.lang.foreign.SymbolLookup;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The search's view of a machine; tests implement machines of every kind. */
interface Machine {
    /** What a path leads to, following symbolic links. */
    enum Kind {
        NOTHING,
        FILE,
        FOLDER,
        /** Something that this user may not read. */
        CLOSED,
        /** A link that leads nowhere, a device, or the like. */
        OTHER
    }

    /** A library in this process. */
    record Opened(SymbolLookup symbols, long address, Version version) {}

    /** A system property. */
    @Nullable String property(String name);

    /** An environment variable. */
    @Nullable String variable(String name);

    /** What a path leads to. */
    Kind kind(String path);

    /** The names in a folder, sorted; none if it cannot be listed. */
    List<String> list(String folder);

    /** The path with symbolic links resolved, or the path itself where that cannot be done. */
    String realPath(String path);

    /** Whether two paths lead to one file. */
    boolean sameFile(String a, String b);

    /** The files that this process executes code from, now. */
    List<Mapping> mappings();

    /** Why native code may not be called; null if it may. */
    @Nullable String nativeAccessRefusal();

    /**
     * Loads a library and queries its version.
     *
     * @param name a path, or a bare file name for the dynamic loader to find
     */
    Opened open(NativeLibrary library, String name) throws OpenException;
}

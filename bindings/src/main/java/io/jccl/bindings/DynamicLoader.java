package io.jccl.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/** The dynamic loader's error messages. The JVM reports only that a library cannot be opened. */
final class DynamicLoader {
    private static final int RTLD_LAZY = 1;
    private static final long LONGEST = 1 << 16;

    private DynamicLoader() {}

    /** Why the JVM could not open a library, such as a missing dependency. */
    static String whyNot(String name) {
        String unknown = "the dynamic loader cannot open it";
        Linker linker = Linker.nativeLinker();
        SymbolLookup libc = linker.defaultLookup();
        Optional<MemorySegment> dlopen = libc.find("dlopen");
        Optional<MemorySegment> dlerror = libc.find("dlerror");
        if (dlopen.isEmpty() || dlerror.isEmpty()) {
            return unknown;
        }
        // Both handles first: looking up a symbol clears the error.
        MethodHandle open =
                linker.downcallHandle(
                        dlopen.get(),
                        FunctionDescriptor.of(
                                ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_INT));
        MethodHandle error =
                linker.downcallHandle(dlerror.get(), FunctionDescriptor.of(ValueLayout.ADDRESS));
        MemorySegment handle;
        MemorySegment text;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment path = arena.allocateFrom(name);
            handle = (MemorySegment) open.invokeExact(path, RTLD_LAZY);
            text = (MemorySegment) error.invokeExact();
        } catch (Throwable t) {
            throw new LinkageError("dlopen", t);
        }
        if (handle.address() != 0 || text.address() == 0) {
            return unknown;
        }
        return text.reinterpret(LONGEST).getString(0);
    }
}

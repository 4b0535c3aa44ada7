package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.MemorySegment;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Everything here works while only the bindings may call native code. */
class NativeAccessTest {
    @Test
    void onlyTheBindingsHaveNativeAccess() {
        Set<String> enabled =
                ModuleLayer.boot().modules().stream()
                        .filter(Module::isNativeAccessEnabled)
                        .map(Module::getName)
                        .filter(name -> name.startsWith("io.jccl"))
                        .collect(Collectors.toSet());
        assertEquals(Set.of("io.jccl.bindings"), enabled);
    }

    @Test
    @SuppressWarnings("restricted")
    void thisModuleIsRefused() {
        assertThrows(IllegalCallerException.class, () -> MemorySegment.NULL.reinterpret(8));
    }
}

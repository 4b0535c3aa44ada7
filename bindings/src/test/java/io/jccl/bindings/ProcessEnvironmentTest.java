package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.jccl.bindings.internal.ProcessEnvironment;
import org.junit.jupiter.api.Test;

class ProcessEnvironmentTest {
    private static final String NAME = "JCCL_TEST_OF_ENVIRONMENT";

    @Test
    void setsWhatNativeCodeSees() {
        assertNull(System.getenv(NAME));
        assertNull(ProcessEnvironment.get(NAME));
        ProcessEnvironment.set(NAME, "one");
        assertEquals("one", ProcessEnvironment.get(NAME));
        ProcessEnvironment.set(NAME, "über alles = 2");
        assertEquals("über alles = 2", ProcessEnvironment.get(NAME));
        assertNull(System.getenv(NAME), "the JVM has a copy");
        ProcessEnvironment.set(NAME, null);
        assertNull(ProcessEnvironment.get(NAME));
        assertEquals(System.getenv("PATH"), ProcessEnvironment.get("PATH"));
    }

    @Test
    void whatCannotBeIsRefused() {
        for (String name : new String[] {"", "A=B", "A\0B"}) {
            assertThrows(
                    IllegalArgumentException.class, () -> ProcessEnvironment.set(name, "value"));
            assertThrows(IllegalArgumentException.class, () -> ProcessEnvironment.get(name));
        }
        assertThrows(IllegalArgumentException.class, () -> ProcessEnvironment.set(NAME, "a\0b"));
    }
}

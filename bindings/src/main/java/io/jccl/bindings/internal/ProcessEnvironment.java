package io.jccl.bindings.internal;

import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import org.jspecify.annotations.Nullable;

/**
 * The environment variables of this process as native code sees them. {@link System#getenv} is a
 * copy that the JVM makes on first use; it does not show variables that are set here afterwards.
 *
 * <p><b>Threads:</b> calls here exclude each other, but not calls by native code: a library that
 * reads a variable on its own thread at the same time may crash, since the C library's functions
 * are not thread-safe. Set variables before the libraries that read them start threads.
 */
public final class ProcessEnvironment {
    private static final long LONGEST = 1 << 20;

    private static final class Calls {
        static final MethodHandle SETENV =
                function(
                        "setenv",
                        FunctionDescriptor.of(
                                ValueLayout.JAVA_INT,
                                ValueLayout.ADDRESS,
                                ValueLayout.ADDRESS,
                                ValueLayout.JAVA_INT));
        static final MethodHandle UNSETENV =
                function(
                        "unsetenv",
                        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS));
        static final MethodHandle GETENV =
                function("getenv", FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS));

        private static MethodHandle function(String name, FunctionDescriptor type) {
            Linker linker = Linker.nativeLinker();
            return linker.downcallHandle(
                    linker.defaultLookup()
                            .find(name)
                            .orElseThrow(() ->
                                    new UnsupportedOperationException(
                                            "the C library has no " + name)),
                    type);
        }
    }

    private ProcessEnvironment() {}

    /**
     * The value of a variable.
     *
     * @param name of the variable
     * @return its value, or null if it is not set
     * @throws IllegalArgumentException if the name is empty or contains {@code =} or a zero
     */
    public static synchronized @Nullable String get(String name) {
        check(name);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment value =
                    (MemorySegment) Calls.GETENV.invokeExact(arena.allocateFrom(name));
            return value.address() == 0 ? null : value.reinterpret(LONGEST).getString(0);
        } catch (RuntimeException e) {
            throw e;
        } catch (Throwable t) {
            throw new LinkageError("getenv", t);
        }
    }

    /**
     * Sets a variable, or removes it.
     *
     * @param name of the variable
     * @param value its new value; null removes it
     * @throws IllegalArgumentException if the name is empty or contains {@code =} or a zero, or the
     *     value a zero
     * @throws JcclException if the C library reports an error
     */
    public static synchronized void set(String name, @Nullable String value) {
        check(name);
        if (value != null && value.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("the value of " + name + " contains a zero byte");
        }
        int result;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment key = arena.allocateFrom(name);
            result =
                    value == null
                            ? (int) Calls.UNSETENV.invokeExact(key)
                            : (int) Calls.SETENV.invokeExact(key, arena.allocateFrom(value), 1);
        } catch (RuntimeException e) {
            throw e;
        } catch (Throwable t) {
            throw new LinkageError("setenv", t);
        }
        if (result != 0) {
            throw new JcclException(
                    "the C library cannot set " + name + ": there may be no memory left");
        }
    }

    private static void check(String name) {
        if (name.isEmpty() || name.indexOf('=') >= 0 || name.indexOf('\0') >= 0) {
            throw new IllegalArgumentException(
                    "'" + name + "' cannot be the name of an environment variable");
        }
    }
}

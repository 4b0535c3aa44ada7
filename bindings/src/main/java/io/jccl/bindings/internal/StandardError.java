package io.jccl.bindings.internal;

import io.jccl.error.JcclException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Arrays;

/**
 * The standard error of this process, for both Java and native code.
 *
 * <p><b>Threads:</b> to be called when a program starts, before others write.
 */
public final class StandardError {
    private static final int STANDARD_ERROR = 2;

    private StandardError() {}

    /**
     * Makes an open file of this process its standard error ({@code dup2}), and closes its original
     * descriptor.
     *
     * @param file its file descriptor, 3 or more
     * @throws IllegalArgumentException if it is below 3
     * @throws JcclException if it is not open
     */
    public static void replaceBy(int file) {
        if (file <= STANDARD_ERROR) {
            throw new IllegalArgumentException("file is " + file + ", expected 3 or more");
        }
        int result;
        try {
            result = (int) call("dup2", 2).invokeExact(file, STANDARD_ERROR);
            if (result == STANDARD_ERROR) {
                var unused = (int) call("close", 1).invokeExact(file);
            }
        } catch (RuntimeException e) {
            throw e;
        } catch (Throwable t) {
            throw new LinkageError("dup2", t);
        }
        if (result != STANDARD_ERROR) {
            throw new JcclException("file " + file + " cannot be standard error: it is not open");
        }
    }

    private static MethodHandle call(String name, int arguments) {
        Linker linker = Linker.nativeLinker();
        ValueLayout[] types = new ValueLayout[arguments];
        Arrays.fill(types, ValueLayout.JAVA_INT);
        return linker.downcallHandle(
                linker.defaultLookup().findOrThrow(name),
                FunctionDescriptor.of(ValueLayout.JAVA_INT, types));
    }
}

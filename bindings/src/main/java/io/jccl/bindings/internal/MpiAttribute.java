package io.jccl.bindings.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * The functions of an attribute of {@code MPI_COMM_SELF}. {@code MPI_Finalize} deletes it before
 * anything else, while all of MPI can be used (MPI 4.0, 11.4.2), so a process learns of that call,
 * whoever makes it. The attribute has to be deleted before the JVM ends: after that a call of the
 * function, as by {@code MPI_Finalize} in an exit handler of C code, crashes the process.
 *
 * <p>The first argument, a communicator, is an int or a pointer; neither function reads it.
 */
public final class MpiAttribute {
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final FunctionDescriptor COPY =
            FunctionDescriptor.of(
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG);

    private static final FunctionDescriptor DELETE =
            FunctionDescriptor.of(
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG);

    private MpiAttribute() {}

    /**
     * Creates a function that leaves the attribute out of a copy of the communicator. It lives as
     * long as the process.
     *
     * @return its address, for {@link io.jccl.bindings.MpiApi#MPI_Comm_create_keyval}
     */
    public static MemorySegment notCopied() {
        return stub(find("copy", COPY.toMethodType()), COPY);
    }

    /**
     * Creates a function that is called when the attribute is deleted. It lives as long as the
     * process.
     *
     * @param action runs on the thread that called MPI; must not throw, since that would end the
     *     process
     * @return its address, for {@link io.jccl.bindings.MpiApi#MPI_Comm_create_keyval}
     */
    public static MemorySegment deleted(Runnable action) {
        MethodType type = DELETE.toMethodType().insertParameterTypes(0, Runnable.class);
        return stub(find("delete", type).bindTo(action), DELETE);
    }

    private static MemorySegment stub(MethodHandle function, FunctionDescriptor type) {
        return Linker.nativeLinker().upcallStub(function, type, Arena.global());
    }

    private static MethodHandle find(String name, MethodType type) {
        try {
            return MethodHandles.lookup().findStatic(MpiAttribute.class, name, type);
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("MpiAttribute." + name, e);
        }
    }

    @SuppressWarnings("unused")
    private static int copy(long comm, int keyval, long extra, long from, long to, long flag) {
        MEMORY.set(ValueLayout.JAVA_INT, flag, 0);
        return 0;
    }

    @SuppressWarnings("unused")
    private static int delete(Runnable action, long comm, int keyval, long value, long extra) {
        action.run();
        return 0;
    }
}

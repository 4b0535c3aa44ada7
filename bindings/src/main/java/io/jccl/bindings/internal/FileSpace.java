package io.jccl.bindings.internal;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Reserves room for a file on its drive with {@code fallocate} of Linux (man 2 fallocate), for
 * which Java has no method. Holds the file open, so that the file may be unlinked in the meantime.
 *
 * <p><b>Threads:</b> any, one at a time.
 */
public final class FileSpace implements AutoCloseable {
    // Constants of Linux, the same on x86-64 and AArch64: asm-generic/fcntl.h, errno-base.h,
    // errno.h.
    private static final int O_RDWR = 2;
    private static final int O_CLOEXEC = 0x80000;
    private static final int EINTR = 4;
    private static final int ENOSYS = 38;
    private static final int EOPNOTSUPP = 95;

    /** The functions of libc, found when first used. */
    private static final class Libc {
        static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");
        static final VarHandle ERRNO_VALUE =
                Linker.Option.captureStateLayout()
                        .varHandle(MemoryLayout.PathElement.groupElement("errno"));
        static final MethodHandle OPEN =
                handle(
                        "open",
                        FunctionDescriptor.of(
                                ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.JAVA_INT),
                        ERRNO,
                        Linker.Option.firstVariadicArg(2));
        static final MethodHandle FALLOCATE =
                handle(
                        "fallocate",
                        FunctionDescriptor.of(
                                ValueLayout.JAVA_INT,
                                ValueLayout.JAVA_INT,
                                ValueLayout.JAVA_INT,
                                ValueLayout.JAVA_LONG,
                                ValueLayout.JAVA_LONG),
                        ERRNO);
        static final MethodHandle CLOSE =
                handle("close", FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT));
        static final MethodHandle STRERROR =
                handle(
                        "strerror",
                        FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.JAVA_INT));

        private static MethodHandle handle(
                String name, FunctionDescriptor type, Linker.Option... options) {
            Linker linker = Linker.nativeLinker();
            return linker.downcallHandle(linker.defaultLookup().findOrThrow(name), type, options);
        }
    }

    private final Path file;
    private int descriptor;

    private FileSpace(Path file, int descriptor) {
        this.file = file;
        this.descriptor = descriptor;
    }

    /**
     * Opens a file.
     *
     * @param file an existing, writable file
     * @return null if the system has no such function
     * @throws IOException if it cannot be opened
     */
    public static @Nullable FileSpace open(Path file) throws IOException {
        if (!System.getProperty("os.name", "").equals("Linux")) {
            return null;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(Linker.Option.captureStateLayout());
            int fd =
                    (int)
                            Libc.OPEN.invokeExact(
                                    state, arena.allocateFrom(file.toString()), O_RDWR | O_CLOEXEC);
            if (fd < 0) {
                throw new IOException(
                        file + ": open: " + text((int) Libc.ERRNO_VALUE.get(state, 0L)));
            }
            return new FileSpace(file, fd);
        } catch (IOException | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException("open", e);
        }
    }

    /**
     * Reserves room, and extends the file if it is shorter.
     *
     * @param offset first byte
     * @param length number of bytes
     * @return false if the file system cannot do that; nothing is changed then
     * @throws IOException if there is no room, or the drive fails
     */
    public boolean reserve(long offset, long length) throws IOException {
        if (descriptor < 0) {
            throw new IllegalStateException(file + " is closed");
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(Linker.Option.captureStateLayout());
            while ((int) Libc.FALLOCATE.invokeExact(state, descriptor, 0, offset, length) != 0) {
                int errno = (int) Libc.ERRNO_VALUE.get(state, 0L);
                if (errno == EOPNOTSUPP || errno == ENOSYS) {
                    return false;
                }
                if (errno != EINTR) {
                    throw new IOException(
                            file + ": fallocate of " + length + " bytes: " + text(errno));
                }
            }
            return true;
        } catch (IOException | RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException("fallocate", e);
        }
    }

    private static String text(int errno) throws Throwable {
        MemorySegment text = (MemorySegment) Libc.STRERROR.invokeExact(errno);
        return text.reinterpret(256).getString(0) + " (errno " + errno + ")";
    }

    /** Closes the file. Closing twice does nothing. */
    @Override
    public void close() {
        if (descriptor >= 0) {
            try {
                int unused = (int) Libc.CLOSE.invokeExact(descriptor);
            } catch (Throwable e) {
                throw new IllegalStateException("close", e);
            }
            descriptor = -1;
        }
    }
}

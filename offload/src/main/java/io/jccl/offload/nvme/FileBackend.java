package io.jccl.offload.nvme;

import io.jccl.bindings.internal.FileSpace;
import io.jccl.device.Device;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import org.jspecify.annotations.Nullable;

/** Positioned reads and writes of a {@link FileChannel}, with O_DIRECT where it is allowed. */
final class FileBackend implements IoBackend {
    /** The usual page and sector size; blocks of this size suit every drive. */
    static final int PAGE = 4096;

    @Override
    public boolean reaches(Device device) {
        return device.kind() == Device.Kind.HOST;
    }

    @Override
    public IoFile open(Path file, NvmeOptions.DirectIo directIo, boolean unnamed)
            throws IOException {
        FileChannel channel = null;
        String reason = directIo == NvmeOptions.DirectIo.OFF ? "the options request it" : null;
        int alignment = PAGE;
        if (reason == null) {
            // getBlockSize is what FileChannel itself requires of addresses and positions. Within a
            // chroot, whose mount has no entry, the JDK finds none.
            long block = PAGE;
            try {
                block = Files.getFileStore(Files.exists(file) ? file : parent(file)).getBlockSize();
            } catch (IOException e) {
                reason = "the file system's alignment is unknown: " + e.getMessage();
            }
            if (block < 1 || block > 1 << 16 || Long.bitCount(block) != 1) {
                reason = "the file system requires an alignment of " + block + " bytes";
            }
            if (reason == null) {
                alignment = (int) Math.max(PAGE, block);
                try {
                    channel = channel(file, true);
                    // Some file systems refuse only the first read.
                    ByteBuffer probe = aligned(alignment, alignment);
                    if (channel.size() > 0) {
                        channel.read(probe, 0);
                    } else {
                        channel.write(probe, 0);
                    }
                } catch (IOException | UnsupportedOperationException e) {
                    if (channel != null) {
                        channel.close();
                        channel = null;
                    }
                    if (e instanceof IOException io && Faults.isFull(io)) {
                        throw io;
                    }
                    reason = "O_DIRECT is refused: " + e.getMessage();
                    alignment = PAGE;
                }
            }
            if (reason != null && directIo == NvmeOptions.DirectIo.REQUIRED) {
                throw new IOException("O_DIRECT is required, but " + reason);
            }
        }
        if (channel == null) {
            channel = channel(file, false);
        }
        FileSpace space = null;
        try {
            space = FileSpace.open(file);
            if (unnamed) {
                Files.delete(file);
            }
            return new ChannelFile(channel, space, alignment, reason);
        } catch (IOException e) {
            channel.close();
            if (space != null) {
                space.close();
            }
            throw e;
        }
    }

    /**
     * O_DIRECT, or null if this JVM has no name for it. It is looked up since javac warns about the
     * package of {@code com.sun.nio.file.ExtendedOpenOption} wherever it is named.
     */
    private static @Nullable OpenOption direct() {
        try {
            for (Object option :
                    Class.forName("com.sun.nio.file.ExtendedOpenOption").getEnumConstants()) {
                if (option.toString().equals("DIRECT")) {
                    return (OpenOption) option;
                }
            }
        } catch (ClassNotFoundException e) {
            // See above.
        }
        return null;
    }

    private static Path parent(Path file) {
        Path parent = file.toAbsolutePath().getParent();
        return parent == null ? file : parent;
    }

    private static FileChannel channel(Path file, boolean direct) throws IOException {
        Set<OpenOption> options = new HashSet<>();
        options.add(StandardOpenOption.CREATE);
        options.add(StandardOpenOption.READ);
        options.add(StandardOpenOption.WRITE);
        if (direct) {
            OpenOption option = direct();
            if (option == null) {
                throw new UnsupportedOperationException("this JVM has no such option");
            }
            options.add(option);
        }
        return FileChannel.open(file, options);
    }

    static ByteBuffer aligned(int size, int alignment) {
        return ByteBuffer.allocateDirect(size + alignment).alignedSlice(alignment).limit(size);
    }

    /** Work on a file. */
    private interface Work {
        void run() throws IOException;
    }

    /**
     * Does what a caller of the store waits for in a thread of its own: a channel closes itself if
     * a thread that uses it is interrupted.
     */
    private static void apart(Work work) throws IOException {
        FutureTask<Boolean> task =
                new FutureTask<>(() -> {
                    work.run();
                    return true;
                });
        Waits.join(
                Thread.ofPlatform().daemon().name("jccl-nvme-flush").start(task), Deadline.FOREVER);
        if (task.state() == Future.State.FAILED) {
            Throwable e = task.exceptionNow();
            if (e instanceof IOException io) {
                throw io;
            }
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void replace(Path file, ByteBuffer content) throws IOException {
        apart(() -> write(file, content));
    }

    private static void write(Path file, ByteBuffer content) throws IOException {
        Path fresh = file.resolveSibling(file.getFileName() + ".new");
        try {
            try (FileChannel channel =
                    FileChannel.open(
                            fresh,
                            StandardOpenOption.CREATE,
                            StandardOpenOption.WRITE,
                            StandardOpenOption.TRUNCATE_EXISTING)) {
                AtomicFile.writeAll(channel, content);
                channel.force(true);
            }
            AtomicFile.rename(fresh, file);
        } catch (IOException e) {
            AtomicFile.discard(fresh, e);
            throw new NotReplacedException(e);
        }
        AtomicFile.force(parent(file)); // the new name
    }

    @Override
    public long freeSpace(Path folder) throws IOException {
        return folder.toFile().getUsableSpace();
    }

    private static final class ChannelFile implements IoFile {
        private final FileChannel channel;
        private final @Nullable FileSpace space;
        private final int alignment;
        private final @Nullable String reason;

        ChannelFile(
                FileChannel channel,
                @Nullable FileSpace space,
                int alignment,
                @Nullable String reason) {
            this.channel = channel;
            this.space = space;
            this.alignment = alignment;
            this.reason = reason;
        }

        @Override
        public int read(MemoryView memory, int worker, long at, int length, long position)
                throws IOException {
            ByteBuffer into = memory.bytes(worker, at, length);
            int done = 0;
            while (done < length) {
                int n = channel.read(into, position + done);
                if (n <= 0) {
                    break;
                }
                done += n;
            }
            return done;
        }

        @Override
        public void write(MemoryView memory, int worker, long at, int length, long position)
                throws IOException {
            ByteBuffer from = memory.bytes(worker, at, length);
            int done = 0;
            while (done < length) {
                int n = channel.write(from, position + done);
                if (n <= 0 || (reason == null && n % alignment != 0)) {
                    throw new IOException(
                            "short write: " + n + " of " + (length - done) + " bytes written");
                }
                done += n;
            }
        }

        @Override
        public void force() throws IOException {
            apart(() -> channel.force(false));
        }

        @Override
        public void grow(long size) throws IOException {
            apart(() -> extend(size));
        }

        private void extend(long size) throws IOException {
            long now = channel.size();
            if (now < size && (space == null || !space.reserve(now, size - now))) {
                channel.write(aligned(alignment, alignment), size - alignment);
            }
        }

        @Override
        public void cut(long size) throws IOException {
            channel.truncate(size);
        }

        @Override
        public int alignment() {
            return alignment;
        }

        @Override
        public @Nullable String bufferedBecause() {
            return reason;
        }

        @Override
        public void close() throws IOException {
            if (space != null) {
                space.close();
            }
            channel.close();
        }
    }
}

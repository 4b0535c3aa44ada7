package io.jccl.offload.nvme;

import io.jccl.device.Device;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/** The real backend, with faults on request. */
final class FaultyBackend implements IoBackend {
    private final FileBackend real = new FileBackend();

    /** Bytes that may be written to blocks, as with a quota. */
    volatile long quota = Long.MAX_VALUE;

    volatile boolean readsFail;
    volatile boolean readsAreShort;
    volatile boolean forceFails;
    volatile boolean replaceFails;
    volatile boolean folderFlushFails;

    /** Operations wait for it. */
    volatile @Nullable CountDownLatch gate;

    /** Flushes of the data begin with it. */
    volatile Runnable beforeFlush = () -> {};

    /** Changes of the drive before the power goes. */
    volatile int power = Integer.MAX_VALUE;

    final AtomicInteger changes = new AtomicInteger();

    /** What was under the blocks that were written and not flushed. */
    private final List<Undo> undo = new ArrayList<>();

    private @Nullable Path data;

    private record Undo(long position, byte[] bytes) {}

    private void change() throws IOException {
        if (changes.getAndIncrement() >= power) {
            throw new IOException("no power");
        }
    }

    /** Loses any of what was not flushed, or a part of a block, as a drive without power may. */
    void losePower(Random random) throws IOException {
        try (FileChannel c =
                FileChannel.open(Objects.requireNonNull(data), StandardOpenOption.WRITE)) {
            for (int i = undo.size() - 1; i >= 0; i--) {
                Undo u = undo.get(i);
                int sectors = u.bytes.length / 512;
                int lost =
                        switch (random.nextInt(3)) {
                            case 0 -> 0;
                            case 1 -> sectors;
                            default -> random.nextInt(sectors + 1);
                        };
                c.write(ByteBuffer.wrap(u.bytes, 0, 512 * lost), u.position);
            }
        }
    }

    private void pass() throws IOException {
        CountDownLatch g = gate;
        if (g != null) {
            try {
                g.await();
            } catch (InterruptedException e) {
                throw new IOException(e);
            }
        }
    }

    @Override
    public boolean reaches(Device device) {
        return real.reaches(device);
    }

    @Override
    public IoFile open(Path file, NvmeOptions.DirectIo directIo, boolean unnamed)
            throws IOException {
        data = file;
        IoFile under = real.open(file, directIo, unnamed);
        return new IoFile() {
            @Override
            public int read(MemoryView memory, int worker, long at, int length, long position)
                    throws IOException {
                pass();
                if (readsFail) {
                    throw new IOException("Input/output error");
                }
                int n = under.read(memory, worker, at, length, position);
                return readsAreShort ? n / 2 : n;
            }

            @Override
            public void write(MemoryView memory, int worker, long at, int length, long position)
                    throws IOException {
                pass();
                synchronized (undo) {
                    change();
                    if (quota < length) {
                        throw new IOException("Disk quota exceeded");
                    }
                    quota -= length;
                    if (power != Integer.MAX_VALUE) {
                        ByteBuffer old = ByteBuffer.allocate(length);
                        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
                            c.read(old, position);
                        }
                        undo.add(new Undo(position, old.array()));
                    }
                }
                under.write(memory, worker, at, length, position);
            }

            @Override
            public void force() throws IOException {
                beforeFlush.run();
                change();
                if (forceFails) {
                    throw new IOException("Input/output error");
                }
                under.force();
                undo.clear();
            }

            @Override
            public void grow(long size) throws IOException {
                under.grow(size);
            }

            @Override
            public void cut(long size) throws IOException {
                under.cut(size);
            }

            @Override
            public int alignment() {
                return under.alignment();
            }

            @Override
            public @Nullable String bufferedBecause() {
                return under.bufferedBecause();
            }

            @Override
            public void close() throws IOException {
                pass(); // as a channel does
                under.close();
            }
        };
    }

    @Override
    public void replace(Path file, ByteBuffer content) throws IOException {
        if (replaceFails) {
            throw new NotReplacedException(new IOException("No space left on device"));
        }
        try {
            change();
        } catch (IOException e) {
            throw new NotReplacedException(e);
        }
        real.replace(file, content);
        change();
        if (folderFlushFails) {
            throw new IOException("Input/output error");
        }
    }

    @Override
    public long freeSpace(Path folder) throws IOException {
        return real.freeSpace(folder);
    }
}

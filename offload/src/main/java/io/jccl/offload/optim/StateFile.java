package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.FileReads;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.zip.CRC32C;

/** The file of an {@link OptimizerState}, which describes it. */
final class StateFile {
    private static final long MAGIC =
            ByteBuffer.wrap("JCCLOPT1".getBytes(StandardCharsets.US_ASCII))
                    .order(ByteOrder.LITTLE_ENDIAN)
                    .getLong();
    private static final int HEADER = 64;
    private static final int BLOCK = 1 << 20;

    private StateFile() {}

    static void save(List<Buffer> buffers, Path file, long step) throws IOException {
        if (step < 0) {
            throw new IllegalArgumentException("step is " + step + ", expected 0 or more");
        }
        try {
            AtomicFile.write(
                    file,
                    c -> {
                        CRC32C crc = new CRC32C();
                        ByteBuffer block =
                                ByteBuffer.allocateDirect(BLOCK).order(ByteOrder.LITTLE_ENDIAN);
                        block.putLong(MAGIC)
                                .putLong(buffers.size() - 1)
                                .putLong(buffers.getFirst().count())
                                .putLong(step);
                        write(c, crc, block.position(HEADER));
                        for (Buffer b : buffers) {
                            MemorySegment s = b.asSegment();
                            for (long at = 0; at < s.byteSize(); at += BLOCK) {
                                int n = (int) Math.min(BLOCK, s.byteSize() - at);
                                block.clear();
                                MemorySegment.copy(s, at, MemorySegment.ofBuffer(block), 0, n);
                                write(c, crc, block.position(n));
                            }
                        }
                        block.clear();
                        write(c, new CRC32C(), block.putInt((int) crc.getValue()));
                    });
        } catch (IOException e) {
            throw new IOException(
                    "cannot save %s bytes of optimizer state, the file is as it was: %s"
                            .formatted(fileSize(buffers), e),
                    e);
        }
        Path folder = file.toAbsolutePath().getParent();
        if (folder != null) {
            AtomicFile.force(folder);
        }
    }

    private static long fileSize(List<Buffer> buffers) {
        long sum = HEADER + Integer.BYTES;
        for (Buffer b : buffers) {
            sum += b.byteSize();
        }
        return sum;
    }

    private static void write(FileChannel c, CRC32C crc, ByteBuffer block) throws IOException {
        block.flip();
        crc.update(block);
        block.rewind();
        AtomicFile.writeAll(c, block);
    }

    static long restore(List<Buffer> buffers, Path file) throws IOException {
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
            ByteBuffer block = ByteBuffer.allocateDirect(BLOCK).order(ByteOrder.LITTLE_ENDIAN);
            if (c.size() < HEADER) {
                throw new IOException(
                        file + " is not an optimizer state: it has " + c.size() + " bytes");
            }
            read(c, block, 0, HEADER, file);
            if (block.getLong(0) != MAGIC) {
                throw new IOException(file + " is not an optimizer state: it has another header");
            }
            long step = block.getLong(24);
            if (block.getLong(8) != (buffers.size() - 1)
                    || block.getLong(16) != buffers.getFirst().count()) {
                throw new IOException(
                        "%s holds %s parameters with %s moments, expected %s with %s"
                                .formatted(
                                        file,
                                        block.getLong(16),
                                        block.getLong(8),
                                        buffers.getFirst().count(),
                                        buffers.size() - 1));
            }
            long size = fileSize(buffers);
            if (c.size() != size) {
                throw new IOException(
                        ("%s is torn, or of another optimizer: it has %s bytes, expected %s; take"
                                        + " an older one, or this optimizer's")
                                .formatted(file, c.size(), size));
            }
            CRC32C crc = new CRC32C();
            long end = size - Integer.BYTES;
            for (long at = 0; at < end; at += BLOCK) {
                read(c, block, at, (int) Math.min(BLOCK, end - at), file);
                crc.update(block);
            }
            read(c, block, end, Integer.BYTES, file);
            if (block.getInt(0) != (int) crc.getValue()) {
                throw new IOException(
                        file
                                + " is damaged: its checksum is "
                                + Integer.toHexString(block.getInt(0))
                                + ", its content gives "
                                + Integer.toHexString((int) crc.getValue())
                                + "; take an older one");
            }
            long base = HEADER;
            for (Buffer b : buffers) {
                MemorySegment s = b.asSegment();
                for (long at = 0; at < s.byteSize(); at += BLOCK) {
                    int n = (int) Math.min(BLOCK, s.byteSize() - at);
                    read(c, block, base + at, n, file);
                    MemorySegment.copy(MemorySegment.ofBuffer(block), 0, s, at, n);
                }
                base += s.byteSize();
            }
            return step;
        }
    }

    private static void read(FileChannel c, ByteBuffer block, long at, int n, Path file)
            throws IOException {
        FileReads.readAll(c, at, block.clear().limit(n), file);
    }
}

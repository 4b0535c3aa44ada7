package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.FileReads;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.zip.CRC32C;

/** The compression state of one rank in a file: the contents of the buffers, then their CRC-32C. */
final class CarriedFile {
    private static final int PIECE = 1 << 20;

    private CarriedFile() {}

    /** Named by rank and number of ranks, since the state belongs to one rank. */
    static Path in(Path folder, int rank, int ranks) {
        return folder.resolve("carried-" + rank + "-of-" + ranks + ".state");
    }

    static void save(Path file, List<Buffer> buffers) throws IOException {
        AtomicFile.write(file, c -> write(c, buffers));
    }

    private static void write(FileChannel c, List<Buffer> buffers) throws IOException {
        CRC32C crc = new CRC32C();
        for (Buffer b : buffers) {
            for (long at = 0; at < b.byteSize(); at += PIECE) {
                Buffer part = part(b, at);
                ByteBuffer piece = ByteBuffer.allocate((int) part.byteSize());
                part.copyTo(MemorySegment.ofBuffer(piece));
                crc.update(piece.duplicate());
                AtomicFile.writeAll(c, piece);
            }
        }
        AtomicFile.writeAll(c, ByteBuffer.allocate(Long.BYTES).putLong(0, crc.getValue()));
    }

    /** The part copied through the host at a time: buffers may be on a GPU. */
    private static Buffer part(Buffer b, long at) {
        int size = b.dataType().size();
        return b.slice(at / size, Math.min(PIECE, b.byteSize() - at) / size);
    }

    /**
     * Reads a file written by {@link #save}.
     *
     * @throws IOException if the file does not match the buffers or is damaged; the message states
     *     which
     */
    static void load(Path file, List<Buffer> buffers) throws IOException {
        long expected = Long.BYTES + buffers.stream().mapToLong(Buffer::byteSize).sum();
        long size = Files.size(file);
        if (size != expected) {
            throw new IOException(
                    "%s is damaged: it has %s bytes, expected %s; resume from another checkpoint"
                            .formatted(file, size, expected));
        }
        CRC32C crc = new CRC32C();
        long next = 0;
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
            for (Buffer b : buffers) {
                for (long at = 0; at < b.byteSize(); at += PIECE) {
                    Buffer part = part(b, at);
                    ByteBuffer piece = ByteBuffer.allocate((int) part.byteSize());
                    FileReads.readAll(c, next, piece.duplicate(), file);
                    next += piece.capacity();
                    part.copyFrom(MemorySegment.ofBuffer(piece));
                    crc.update(piece);
                }
            }
            ByteBuffer sum = ByteBuffer.allocate(Long.BYTES);
            FileReads.readAll(c, next, sum, file);
            if (sum.getLong(0) != crc.getValue()) {
                throw new IOException(
                        file
                                + " is damaged: its checksum is wrong; resume from another"
                                + " checkpoint");
            }
        }
    }
}

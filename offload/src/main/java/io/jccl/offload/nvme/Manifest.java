package io.jccl.offload.nvme;

import io.jccl.device.DataType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import java.util.zip.CRC32C;

/** The header of the file of blocks, and the manifest; docs/nvme-tier.md has their formats. */
final class Manifest {
    static final int VERSION = 1;

    /** The step of a store without a commit. */
    static final long NO_STEP = -1;

    private static final long FILE_MAGIC = magic("JCCLNVMD");
    private static final long MANIFEST_MAGIC = magic("JCCLNVMM");
    private static final int HEADER = 40;
    private static final int FIXED = 56;
    private static final String RESTORE = "restore the folder from a copy, or start a new one";

    private Manifest() {}

    /** The content of a manifest. */
    record Content(
            UUID id, int blockBytes, int padding, long step, long fileEnd, List<Entry> regions) {}

    /** A region in a manifest. */
    record Entry(
            String name, DataType type, long count, long base, byte[] states, int[] checksums) {}

    private static long magic(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII))
                .order(ByteOrder.LITTLE_ENDIAN)
                .getLong();
    }

    private static int crc(ByteBuffer bytes, int from, int to) {
        CRC32C crc = new CRC32C();
        crc.update(bytes.slice(from, to - from));
        return (int) crc.getValue();
    }

    /** The first bytes of the file of blocks. */
    static void header(ByteBuffer into, UUID id, int blockBytes, int padding) {
        into.order(ByteOrder.LITTLE_ENDIAN);
        into.putLong(0, FILE_MAGIC);
        into.putInt(8, VERSION);
        into.putInt(12, blockBytes);
        into.putInt(16, padding);
        into.putLong(20, id.getMostSignificantBits());
        into.putLong(28, id.getLeastSignificantBits());
        into.putInt(36, crc(into, 0, 36));
    }

    /** Checks the first bytes of the file of blocks against the manifest. */
    static void checkHeader(Path file, ByteBuffer header, int length, UUID id) {
        header.order(ByteOrder.LITTLE_ENDIAN);
        if (length < HEADER || header.getLong(0) != FILE_MAGIC) {
            throw foreign(file, length < HEADER ? 0 : header.getLong(0), "JCCLNVMD");
        }
        checkVersion(file, header.getInt(8));
        checkCrc(file, 0, header.getInt(36), crc(header, 0, 36), "the header");
        UUID found = new UUID(header.getLong(20), header.getLong(28));
        if (!found.equals(id)) {
            throw new CorruptStoreException(
                    file,
                    20,
                    "the file is of another store",
                    id.toString(),
                    found.toString(),
                    RESTORE);
        }
    }

    /**
     * Checks that a file without a manifest is that of a store whose creation was interrupted: a
     * header, or zeros.
     */
    static void checkIsOurs(Path file, ByteBuffer start) {
        start.order(ByteOrder.LITTLE_ENDIAN);
        boolean header = start.limit() >= HEADER && start.getLong(0) == FILE_MAGIC;
        for (int i = 0; i < start.limit() && !header; i++) {
            if (start.get(i) != 0) {
                throw foreign(file, start.limit() < 8 ? 0 : start.getLong(0), "JCCLNVMD");
            }
        }
    }

    private static CorruptStoreException foreign(Path file, long found, String expected) {
        return new CorruptStoreException(
                file,
                0,
                "this is not a file of a store",
                "0x" + Long.toHexString(magic(expected)),
                "0x" + Long.toHexString(found),
                "name another folder, or move the file away");
    }

    private static void checkVersion(Path file, int version) {
        if (version != VERSION) {
            throw new CorruptStoreException(
                    file,
                    8,
                    "the format is another",
                    "version " + VERSION,
                    "version " + version,
                    "open it with the program that wrote it");
        }
    }

    private static void checkCrc(Path file, long offset, int expected, int found, String what) {
        if (expected != found) {
            throw new CorruptStoreException(
                    file,
                    offset,
                    what + " was torn or changed",
                    "CRC32C 0x" + Integer.toHexString(expected),
                    "0x" + Integer.toHexString(found),
                    RESTORE);
        }
    }

    /** The bytes that {@link #write} needs. */
    static int size(Collection<Region> regions) {
        long size = FIXED + 4;
        for (Region r : regions) {
            size += 4 + utf8(r.name).length + 4 + utf8(r.type.label()).length + 16;
            size += 5L * r.flags.length;
        }
        return Math.toIntExact(size);
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Writes the state of the regions after the next commit. */
    static void write(
            ByteBuffer to,
            UUID id,
            int blockBytes,
            int padding,
            long step,
            long fileEnd,
            Collection<Region> regions) {
        to.order(ByteOrder.LITTLE_ENDIAN);
        to.putLong(MANIFEST_MAGIC).putInt(VERSION).putInt(blockBytes).putInt(padding);
        to.putInt(regions.size());
        to.putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits());
        to.putLong(step).putLong(fileEnd);
        for (Region r : regions) {
            byte[] name = utf8(r.name);
            byte[] type = utf8(r.type.label());
            to.putInt(name.length).put(name).putInt(type.length).put(type);
            to.putLong(r.count).putLong(r.base);
            for (int b = 0; b < r.flags.length; b++) {
                int state = r.stateToCommit(b);
                to.put((byte) state);
                to.putInt(state == 0 ? 0 : r.checksum(b, state & Region.SLOT));
            }
        }
        to.putInt(crc(to, 0, to.position()));
        to.flip();
    }

    /** Reads a manifest, or throws an exception with what is wrong. */
    static Content read(Path file) throws IOException {
        long size = Files.size(file);
        if (size < FIXED + 4 || size > Integer.MAX_VALUE - 8) {
            throw new CorruptStoreException(
                    file,
                    Math.min(size, FIXED + 4),
                    "the manifest was cut short or is not a manifest",
                    "at least " + (FIXED + 4) + " bytes",
                    size + " bytes",
                    RESTORE);
        }
        ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
        if (in.getLong(0) != MANIFEST_MAGIC) {
            throw foreign(file, in.getLong(0), "JCCLNVMM");
        }
        checkVersion(file, in.getInt(8));
        int end = in.limit() - 4;
        checkCrc(file, end, in.getInt(end), crc(in, 0, end), "the manifest");
        in.position(12);
        int blockBytes = in.getInt();
        int padding = in.getInt();
        int count = in.getInt();
        UUID id = new UUID(in.getLong(), in.getLong());
        long step = in.getLong();
        long fileEnd = in.getLong();
        List<Entry> regions = new ArrayList<>();
        for (int r = 0; r < count; r++) {
            String name = text(in);
            DataType type = type(text(in));
            long elements = in.getLong();
            long base = in.getLong();
            int blocks = Region.blocks(type, elements, blockBytes);
            byte[] states = new byte[blocks];
            int[] checksums = new int[blocks];
            for (int b = 0; b < blocks; b++) {
                states[b] = in.get();
                checksums[b] = in.getInt();
            }
            regions.add(new Entry(name, type, elements, base, states, checksums));
        }
        return new Content(id, blockBytes, padding, step, fileEnd, regions);
    }

    private static String text(ByteBuffer in) {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static DataType type(String label) {
        for (DataType type : DataType.values()) {
            if (type.label().equals(label)) {
                return type;
            }
        }
        throw new IllegalStateException("no data type is called " + label);
    }
}

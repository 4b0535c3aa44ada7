package io.jccl.bindings;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.jspecify.annotations.Nullable;

/** The first bytes of a shared library, as elf(5) describes them. */
final class ElfHeader {
    /** Its size in a 64-bit file. */
    static final int BYTES = 64;

    private static final int MAGIC = 0x46_4c_45_7f;
    private static final int CLASS = 4;
    private static final int CLASS_64 = 2;
    private static final int MACHINE = 18;
    private static final int SECTIONS_AT = 40;
    private static final int SECTION_BYTES = 58;
    private static final int SECTIONS = 60;

    private static final int X86_64 = 62;
    private static final int AARCH64 = 183;

    private ElfHeader() {}

    /**
     * Why a file cannot be a library for a processor; null if it may be one.
     *
     * @param head first bytes of the file
     * @param size its length
     * @param arch the processor, as named by the JVM
     */
    static @Nullable String problem(byte[] head, long size, String arch) {
        ByteBuffer header = header(head);
        if (header.getInt(0) != MAGIC) {
            return "it is not a shared library, or it is damaged: it does not start with an ELF header";
        }
        if (size > CLASS && header.get(CLASS) != CLASS_64) {
            return "it is a 32-bit library, and this JVM needs a 64-bit one";
        }
        int machine = Short.toUnsignedInt(header.getShort(MACHINE));
        int expected =
                switch (arch) {
                    case "amd64", "x86_64" -> X86_64;
                    case "aarch64" -> AARCH64;
                    default -> machine;
                };
        if (size > MACHINE + 1 && machine != expected) {
            return "it is a library for " + name(machine) + ", and this JVM runs on " + arch;
        }
        return shortage(head, size);
    }

    /**
     * What is missing at the end of a 64-bit ELF file; null if nothing. The dynamic loader does not
     * notice: the process ends with SIGBUS when it reads missing pages.
     */
    static @Nullable String shortage(byte[] head, long size) {
        ByteBuffer header = header(head);
        if (header.getInt(0) != MAGIC || (size > CLASS && header.get(CLASS) != CLASS_64)) {
            return null;
        }
        // Linkers put the section table last.
        long end =
                header.getLong(SECTIONS_AT)
                        + (long) header.getShort(SECTIONS) * header.getShort(SECTION_BYTES);
        return size >= Math.max(end, BYTES)
                ? null
                : "it is truncated: it has " + size + " bytes of at least " + Math.max(end, BYTES);
    }

    /** Little-endian, as are all machines for which these libraries exist. */
    private static ByteBuffer header(byte[] head) {
        return ByteBuffer.allocate(BYTES).order(ByteOrder.LITTLE_ENDIAN).put(head).clear();
    }

    private static String name(int machine) {
        return switch (machine) {
            case X86_64 -> "amd64";
            case AARCH64 -> "aarch64";
            default -> "another processor (ELF machine " + machine + ")";
        };
    }
}

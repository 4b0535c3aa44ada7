package io.jccl.bindings;

import org.jspecify.annotations.Nullable;

/** The first bytes of a shared library. */
final class ElfHeader {
    private static final int CLASS = 4;
    private static final int CLASS_64 = 2;
    private static final int MACHINE = 18;
    private static final int X86_64 = 62;
    private static final int AARCH64 = 183;

    private ElfHeader() {}

    /** Why a file that starts like this is no library for a processor; null if it may be one. */
    static @Nullable String problem(byte[] head, String arch) {
        if (head.length < MACHINE + 2
                || head[0] != 0x7f
                || head[1] != 'E'
                || head[2] != 'L'
                || head[3] != 'F') {
            return "it is no shared library, or a damaged one: it does not start as an ELF file";
        }
        if (head[CLASS] != CLASS_64) {
            return "it is a 32-bit library, and this JVM needs a 64-bit one";
        }
        // Little-endian, as all machines are that these libraries exist for.
        int machine = (head[MACHINE] & 0xff) | (head[MACHINE + 1] & 0xff) << 8;
        int expected =
                switch (arch) {
                    case "amd64", "x86_64" -> X86_64;
                    case "aarch64" -> AARCH64;
                    default -> machine;
                };
        return machine == expected
                ? null
                : "it is a library for " + name(machine) + ", and this JVM runs on " + arch;
    }

    private static String name(int machine) {
        return switch (machine) {
            case X86_64 -> "amd64";
            case AARCH64 -> "aarch64";
            default -> "another processor (ELF machine " + machine + ")";
        };
    }
}

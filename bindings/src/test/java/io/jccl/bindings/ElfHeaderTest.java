package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ElfHeaderTest {
    @ParameterizedTest
    @CsvSource({"amd64, 62", "aarch64, 183", "riscv64, 243", "ppc64le, 21"})
    void librariesOfThisProcessorMayDo(String arch, int machine) {
        assertNull(ElfHeader.problem(header(2, machine), 64, arch));
    }

    @ParameterizedTest
    @CsvSource({
        "amd64, 2, 183, for aarch64",
        "aarch64, 2, 62, for amd64",
        "amd64, 2, 21, ELF machine 21",
        "amd64, 1, 3, 32-bit",
        "aarch64, 1, 40, 32-bit"
    })
    void othersAreNamed(String arch, int bits, int machine, String named) {
        String problem = String.valueOf(ElfHeader.problem(header(bits, machine), 64, arch));
        assertTrue(problem.contains(named), problem);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "INPUT(libnccl.so.2)  ", "version https://git-lfs"})
    void whatIsNoElfFileIsNoLibrary(String start) {
        String problem =
                String.valueOf(
                        ElfHeader.problem(
                                start.getBytes(StandardCharsets.ISO_8859_1), 64, "amd64"));
        assertTrue(problem.contains("not a shared library"), problem);
    }

    @Test
    void theMachineNumberHasTwoBytes() {
        assertNull(ElfHeader.problem(header(2, 62), 64, "x86_64"));
        assertTrue(
                String.valueOf(ElfHeader.problem(header(2, 62 + 256), 64, "amd64"))
                        .contains("318"));
    }

    /** The table of sections: 3 of 64 bytes each, from byte 1000 on. */
    @ParameterizedTest
    @CsvSource({"1192, true", "5000, true", "1191, false", "64, false"})
    void aFileThatIsCutShortIsNoLibrary(long size, boolean whole) {
        byte[] head = header(2, 62);
        ByteBuffer.wrap(head)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(40, 1000)
                .putShort(58, (short) 64)
                .putShort(60, (short) 3);
        String problem = ElfHeader.problem(head, size, "amd64");
        assertEquals(
                whole ? null : "it is truncated: it has " + size + " bytes of at least 1192",
                problem);
    }

    @Test
    void evenTheHeaderMayBeCutShort() {
        for (int size = 4; size < 64; size++) {
            byte[] head = Arrays.copyOf(header(2, 62), size);
            assertEquals(
                    "it is truncated: it has " + size + " bytes of at least 64",
                    ElfHeader.problem(head, size, "amd64"));
        }
    }

    private static byte[] header(int bits, int machine) {
        byte[] head = new byte[ElfHeader.BYTES];
        head[0] = 0x7f;
        head[1] = 'E';
        head[2] = 'L';
        head[3] = 'F';
        head[4] = (byte) bits;
        head[18] = (byte) machine;
        head[19] = (byte) (machine >> 8);
        return head;
    }
}

package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class MappingTest {
    @Test
    void onlyExecutableFilePagesCount() {
        List<Mapping> mappings =
                Mapping.parse(
                        """
                        7f0000000000-7f0000001000 r--p 00000000 08:01 77   /lib/libnccl.so.2
                        7f0000001000-7f0000003000 r-xp 00001000 08:01 77   /lib/libnccl.so.2
                        7f0000003000-7f0000004000 rw-p 00003000 08:01 77   /lib/libnccl.so.2
                        7f0000010000-7f0000020000 r--s 00000000 08:01 78   /data/libnccl.so.2
                        7f0000020000-7f0000030000 rwxp 00000000 00:00 0
                        7f0000030000-7f0000040000 rw-p 00000000 00:00 0    [heap]
                        7fff00000000-7fff00001000 r-xp 00000000 00:00 0    [vdso]
                        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
                        """);
        assertEquals(
                List.of(
                        new Mapping(
                                0x7f00_0000_1000L,
                                0x7f00_0000_3000L,
                                "08:01 77",
                                "/lib/libnccl.so.2",
                                false)),
                mappings);
    }

    @Test
    void pathsMayHaveSpaces() {
        Mapping mapping = one("1000-2000 r-xp 0 fd:02 9   /my libs/a  b/libnccl.so.2");
        assertEquals("/my libs/a  b/libnccl.so.2", mapping.path());
        assertEquals("libnccl.so.2", mapping.name());
    }

    @Test
    void deletedFilesKeepTheirName() {
        Mapping mapping = one("1000-2000 r-xp 0 fd:02 9   /my libs/libnccl.so.2 (deleted)");
        assertEquals("/my libs/libnccl.so.2", mapping.path());
        assertTrue(mapping.deleted());
        assertFalse(one("1000-2000 r-xp 0 fd:02 9 /lib/libnccl.so.2").deleted());
    }

    @Test
    void rangesAreHalfOpenAndUnsigned() {
        Mapping mapping = one("1000-ffffffffff601000 r-xp 0 fd:02 9 /lib/x.so");
        assertFalse(mapping.contains(0xfff));
        assertTrue(mapping.contains(0x1000));
        assertTrue(mapping.contains(0xffff_ffff_ff60_0fffL));
        assertFalse(mapping.contains(0xffff_ffff_ff60_1000L));
    }

    @Test
    void whatMakesNoSenseIsLeftOut() {
        assertEquals(List.of(), Mapping.parse(""));
        assertEquals(List.of(), Mapping.parse("\n\nnonsense\na-b\n"));
        assertEquals(List.of(), Mapping.parse("xyz-2000 r-xp 0 fd:02 9 /lib/x.so"));
        assertEquals(List.of(), Mapping.parse("10002000 r-xp 0 fd:02 9 /lib/x.so"));
    }

    @Test
    void thisProcessHasMappings() {
        List<Mapping> own = new LocalMachine().mappings();
        assertTrue(own.stream().anyMatch(m -> m.name().equals("libjvm.so")), own::toString);
    }

    private static Mapping one(String line) {
        List<Mapping> found = Mapping.parse(line);
        assertEquals(1, found.size());
        return found.getFirst();
    }
}

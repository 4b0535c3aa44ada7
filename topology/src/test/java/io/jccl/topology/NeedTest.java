package io.jccl.topology;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Set;
import org.junit.jupiter.api.Test;
import org.opentest4j.TestAbortedException;

class NeedTest {
    @Test
    void listsAreRead() {
        assertEquals(Set.of(), Need.parse(""));
        assertEquals(Set.of(), Need.parse("nccl,cc"));
        assertEquals(Set.of(Need.TOPO), Need.parse("nccl, Topo ,"));
        assertEquals(Set.of(Need.values()), Need.parse("all"));
    }

    @Test
    void aSkipCanBeForbidden() {
        assertThrows(TestAbortedException.class, () -> Need.TOPO.absent("no dumps", Set.of()));
        assertEquals(
                "JCCL_TEST_REQUIRE lists topo, but no dumps",
                assertThrows(
                                AssertionError.class,
                                () -> Need.TOPO.absent("no dumps", Set.of(Need.TOPO)))
                        .getMessage());
    }
}

package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Set;
import org.junit.jupiter.api.Test;
import org.opentest4j.TestAbortedException;

class NeedTest {
    @Test
    void listsAreRead() {
        assertEquals(Set.of(), Need.parse(""));
        assertEquals(Set.of(Need.CC, Need.NCCL), Need.parse(" nccl,CC ,"));
        assertEquals(Set.of(Need.values()), Need.parse("all"));
        assertThrows(IllegalArgumentException.class, () -> Need.parse("nccl,gpus"));
    }

    @Test
    void aSkipCanBeForbidden() {
        assertEquals(
                "no mpicc here",
                assertThrows(
                                TestAbortedException.class,
                                () -> Need.MPI.absent("no mpicc here", Set.of(Need.CC)))
                        .getMessage());
        assertEquals(
                "JCCL_TEST_REQUIRE lists mpi, but no mpicc here",
                assertThrows(
                                AssertionError.class,
                                () -> Need.MPI.absent("no mpicc here", Set.of(Need.MPI)))
                        .getMessage());
    }
}

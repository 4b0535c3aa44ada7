package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.RankFailedException;
import io.jccl.device.Device;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class EngineTest {
    @Test
    void namesAreThoseOfTheCommandLine() {
        assertEquals(Engine.HOST, Engine.of("host"));
        assertEquals(Engine.NCCL, Engine.of("nccl"));
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> Engine.of("NCCL"));
        assertTrue(String.valueOf(e.getMessage()).contains("'NCCL'"), e::toString);
    }

    /** The variable as Communicator.fromEnvironment reads it: empty is as good as not set. */
    @Test
    void theVariableCountsWhereThereIsNoOption() {
        for (String name : new String[] {"", "  ", "host", " host\n"}) {
            assertEquals(Engine.HOST, Engine.of(null, Map.of("JCCL_ENGINE", name)));
        }
        assertEquals(Engine.HOST, Engine.of(null, Map.of()));
        assertEquals(Engine.MPI, Engine.of(null, Map.of("JCCL_ENGINE", "mpi")));
        assertEquals(Engine.HOST, Engine.of(Engine.HOST, Map.of("JCCL_ENGINE", "gpu")));
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> Engine.of(null, Map.of("JCCL_ENGINE", "gpu")));
        assertEquals(
                "JCCL_ENGINE: engine 'gpu' is unknown, expected host, mpi or nccl", e.getMessage());
    }

    @Test
    void hostNeedsNoGpu() {
        assertEquals(3, Engine.HOST.devices(3).size());
        assertEquals(Device.host(), Engine.HOST.device(Map.of("LOCAL_RANK", "7")));
    }

    @Test
    void badLocalRankIsNamed() {
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () ->
                                Engine.NCCL.device(
                                        Map.of(
                                                "RANK",
                                                "0",
                                                "WORLD_SIZE",
                                                "1",
                                                "LOCAL_RANK",
                                                "first")));
        assertTrue(String.valueOf(e.getMessage()).contains("LOCAL_RANK is 'first'"), e::toString);
    }

    /** As processes, of which each prints what it has learnt. */
    @Test
    void theOthersLearnWhyARankHasFailed() {
        List<Communicator> ranks = Communicator.local(2);
        IOException full = new IOException("no room for step 2");
        Communicator.RankBody fails =
                comm -> {
                    throw full;
                };
        assertSame(
                full, assertThrows(IOException.class, () -> Engine.HOST.run(ranks.get(1), fails)));
        Communicator.RankBody waits = comm -> comm.barrier(comm.device().defaultStream());
        RankFailedException e =
                assertThrows(RankFailedException.class, () -> Engine.HOST.run(ranks.get(0), waits));
        assertTrue(String.valueOf(e.getMessage()).contains("rank 1"), e::toString);
        assertTrue(String.valueOf(e.getMessage()).contains("no room for step 2"), e::toString);
    }
}

package io.jccl.cli.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MemoryKillsTest {
    private static final String NOTE =
            "; memory ran out here meanwhile, of the machine or of a container, and the kernel killed ";

    @TempDir private Path folder;

    @Test
    void aKilledRankIsExplainedIfTheKernelKilledMeanwhile() throws IOException {
        Path counters = folder.resolve("vmstat");
        Files.writeString(counters, "pgfault 7\noom_kill 6\nhtlb_buddy_alloc_success 0\n");
        MemoryKills kills = new MemoryKills(counters);
        assertEquals("", kills.note(137));
        Files.writeString(counters, "pgfault 9\noom_kill 7\n");
        assertEquals(NOTE + "1 process: dmesg says which", kills.note(137));
        assertEquals("", kills.note(1));
        assertEquals("", kills.note(143));
        Files.writeString(counters, "oom_kill 9\n");
        assertEquals(NOTE + "3 processes: dmesg says which", kills.note(137));
        Files.delete(counters);
        assertEquals("", kills.note(137));
    }

    @Test
    void withoutTheCounterNothingIsSaid() throws IOException {
        Path counters = folder.resolve("vmstat");
        Files.writeString(counters, "pgfault 7\n");
        MemoryKills kills = new MemoryKills(counters);
        Files.writeString(counters, "oom_kill 7\n");
        assertEquals("", kills.note(137));
    }
}

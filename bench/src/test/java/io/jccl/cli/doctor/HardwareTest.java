package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.jccl.bindings.NativeLibrary;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HardwareTest {
    private static final String CACHE = "/sys/devices/system/cpu/cpu0/cache/index";

    @TempDir private Path root;

    private FakeMachine cache(FakeMachine to, int index, int level, String type, String size) {
        String folder = CACHE + index + "/";
        return to.file(folder + "level", level + "\n")
                .file(folder + "type", type + "\n")
                .file(folder + "size", size + "\n")
                .file(folder + "shared_cpu_list", "0-3\n");
    }

    @Test
    void aMachineIsSummedUp() {
        FakeMachine fake = new FakeMachine(root).healthy();
        cache(fake, 0, 1, "Data", "48K");
        cache(fake, 1, 1, "Instruction", "32K");
        cache(fake, 10, 3, "Unified", "33M");
        cache(fake, 2, 2, "Unified", "2048K");
        fake.found(NativeLibrary.CUDART, "13.0", "/x");
        Hardware h = Hardware.of(fake.build(), true);
        assertEquals("A CPU", h.cpu());
        assertEquals(4, h.cores());
        assertEquals(8, h.threads());
        assertEquals("0-7", h.affinity());
        assertEquals(
                List.of(
                        new Hardware.Cache(1, "data", 48 << 10, "0-3"),
                        new Hardware.Cache(1, "instruction", 32 << 10, "0-3"),
                        new Hardware.Cache(2, "unified", 2 << 20, "0-3"),
                        new Hardware.Cache(3, "unified", 33 << 20, "0-3")),
                h.caches());
        assertEquals("13.0", h.libraries().get("cudart"));
        assertEquals(Map.of(), Hardware.of(fake.build(), false).libraries());
    }

    /** A container's limit counts, where there is one. */
    @Test
    void availableMemoryIsWhatAllLimitsLeave() {
        FakeMachine fake =
                new FakeMachine(root)
                        .file("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n")
                        .file("/proc/self/cgroup", "0::/job\n")
                        .file(
                                "/proc/self/mountinfo",
                                "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
                        .file("/sys/fs/cgroup/job/memory.max", "1048576\n");
        Hardware limited = Hardware.of(fake.build(), false);
        assertEquals(4096L << 10, limited.memoryBytes());
        assertEquals(1L << 20, limited.availableMemoryBytes());
        fake.file("/sys/fs/cgroup/job/memory.max", "max\n");
        assertEquals(2048L << 10, Hardware.of(fake.build(), false).availableMemoryBytes());
    }

    @Test
    void whatCannotBeReadIsNull() {
        Hardware h = Hardware.of(new FakeMachine(root).build(), true);
        assertNull(h.cpu());
        assertNull(h.cores());
        assertNull(h.memoryBytes());
        assertNull(h.availableMemoryBytes());
        assertEquals(List.of(), h.caches());
        assertEquals(Map.of(), h.libraries());
        assertEquals(8, h.availableCpus());
    }
}

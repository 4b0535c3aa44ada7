package io.jccl.bootstrap;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.host.SharedMemoryFullException;
import java.lang.foreign.Arena;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SharedMemoryTest {
    /** As where inodes, a quota or the process's limits are used up. */
    @Test
    void whatTheSystemRefusesThoughThereIsRoomIsNamed(@TempDir Path folder) {
        String name = "x".repeat(1000);
        FileSystemException refused =
                assertThrows(
                        FileSystemException.class, () -> Files.createFile(folder.resolve(name)));
        try (Arena arena = Arena.ofConfined()) {
            SharedMemoryFullException e =
                    assertThrows(
                            SharedMemoryFullException.class,
                            () -> SharedMemory.create(folder, name, 78_592, arena, "a buffer"));
            String message = String.valueOf(e.getMessage());
            assertTrue(message.contains(", 76.8 KiB for a buffer: "), message);
            assertTrue(message.contains(": " + refused.getReason() + ". "), message);
        }
    }
}

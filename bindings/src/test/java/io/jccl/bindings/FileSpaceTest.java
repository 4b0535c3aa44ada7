package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.bindings.internal.FileSpace;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

@EnabledOnOs(OS.LINUX)
class FileSpaceTest {
    @TempDir private Path folder;

    private FileSpace open(Path file) throws IOException {
        FileSpace space = FileSpace.open(file);
        assertNotNull(space);
        return space;
    }

    @Test
    void reservesRoomAlsoWithoutAName() throws IOException {
        Path file = Files.write(folder.resolve("file"), new byte[] {42});
        Path other = folder.resolve("link");
        Files.createLink(other, file);
        try (FileSpace space = open(file)) {
            Files.delete(file);
            assumeTrue(space.reserve(0, 1 << 20), "the file system has no fallocate");
            assertEquals(1 << 20, Files.size(other));
            assertEquals(42, Files.readAllBytes(other)[0]);
            // Counted in units of 512 bytes by the system: all of it is there.
            assertTrue(blocks(other) * 512 >= 1 << 20);
        }
    }

    private static long blocks(Path file) throws IOException {
        Process p = new ProcessBuilder("stat", "-c", "%b", file.toString()).start();
        return Long.parseLong(
                new String(
                                p.getInputStream().readAllBytes(),
                                java.nio.charset.StandardCharsets.UTF_8)
                        .strip());
    }

    @Test
    void errorsCarryTheSystemsText() throws IOException {
        IOException e =
                assertThrows(IOException.class, () -> FileSpace.open(folder.resolve("missing")));
        assertTrue(String.valueOf(e.getMessage()).contains("No such file"), e.getMessage());
        FileSpace space = open(Files.createFile(folder.resolve("file")));
        assertThrows(IOException.class, () -> space.reserve(-1, 10));
        e = assertThrows(IOException.class, () -> space.reserve(0, Long.MAX_VALUE));
        assertTrue(
                String.valueOf(e.getMessage()).contains(Long.MAX_VALUE + " bytes"), e.getMessage());
        space.close();
        space.close();
        assertThrows(IllegalStateException.class, () -> space.reserve(0, 1));
    }
}

package io.jccl.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FileReadsTest {
    @TempDir private Path folder;

    private static String error(Path file, int bytes) throws IOException {
        try (FileChannel c = FileChannel.open(file)) {
            ByteBuffer to = ByteBuffer.allocate(bytes);
            return String.valueOf(
                    assertThrows(IOException.class, () -> FileReads.readAll(c, 0, to, file))
                            .getMessage());
        }
    }

    @Test
    void errorsNameTheFile() throws IOException {
        Path file = Files.writeString(folder.resolve("short"), "text");
        assertEquals(file + " is damaged: it ends at byte 4, too early", error(file, 5));
        // No memory is mapped at its beginning, so reading it fails as from a bad sector.
        Path memory = Path.of("/proc/self/mem");
        assumeTrue(Files.isReadable(memory), "there is no /proc/self/mem here");
        String message = error(memory, 5);
        assertTrue(message.startsWith(memory + " cannot be read: "), message);
    }
}

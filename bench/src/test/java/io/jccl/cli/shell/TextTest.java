package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.MalformedInputException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TextTest {
    /** Their own messages are names of files, and nothing else. */
    @Test
    void errorsOfFilesSayWhatIsWrong(@TempDir Path folder) throws IOException {
        assertEquals("x: permission denied", Text.message(new AccessDeniedException("x")));
        assertEquals(
                "x: permission denied",
                Text.message(new UncheckedIOException(new AccessDeniedException("x"))));
        assertEquals(
                "cannot map x: permission denied",
                Text.message(
                        new UncheckedIOException("cannot map x", new AccessDeniedException("x"))));
        assertEquals(
                "cannot write x: it is full",
                Text.message(
                        new UncheckedIOException(
                                "cannot write x: it is full", new IOException("it is full"))));
        Path none = folder.resolve("none");
        assertEquals(
                none + ": no such file or folder",
                Text.message(assertThrows(IOException.class, () -> Files.readString(none))));
        Path file = Files.writeString(folder.resolve("file"), "text");
        assertEquals(
                file + ": a file of this name exists",
                Text.message(assertThrows(IOException.class, () -> Files.createDirectories(file))));
        Path device = Path.of("/dev/null");
        assumeTrue(Files.exists(device), "no /dev/null");
        assertEquals(
                "Not a directory",
                Text.reason(
                        assertThrows(
                                IOException.class, () -> Files.readString(device.resolve("x")))));
    }

    @Test
    void otherErrorsHaveTheirMessages() {
        assertEquals("why", Text.message(new IllegalStateException("why")));
        assertEquals("java.lang.NullPointerException", Text.message(new NullPointerException()));
        assertEquals("it is not UTF-8", Text.reason(new MalformedInputException(1)));
    }
}

package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Model.PositionalParamSpec;
import picocli.CommandLine.ParameterException;

/** What stands in the place of a file that is to be written is not lost. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class OutputTest {
    @TempDir private Path folder;

    private static void write(Path file, String text) throws IOException {
        Output.checkWritable("--json", file);
        Output.write(Map.of(file, text));
    }

    private List<String> names() throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.map(p -> p.getFileName().toString()).sorted().toList();
        }
    }

    @Test
    void aFileIsReplaced() throws IOException {
        Path file = folder.resolve("a");
        write(file, "one\n");
        write(file, "two\n");
        assertEquals("two\n", Files.readString(file));
        assertEquals(List.of("a"), names());
    }

    /** A secret stays one. */
    @Test
    void aFileThatIsReplacedKeepsItsPermissions() throws IOException {
        for (String mode : List.of("rw-------", "rw-rw-r--", "-w-------")) {
            Path file = Files.writeString(folder.resolve(mode), "old\n");
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(mode));
            write(file, "new\n");
            assertEquals(mode, PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
        }
    }

    @Test
    void aFileThatIsProtectedIsRefused() throws IOException {
        Path file = Files.writeString(folder.resolve("a"), "old\n");
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("r--r--r--"));
        assumeFalse(Files.isWritable(file), "root may write to all files");
        refused(file);
    }

    /** As long as the system permits, and not longer. */
    @Test
    void longNamesAreWrittenOrRefused() throws IOException {
        Path longest = folder.resolve("n".repeat(255));
        write(longest, "text\n");
        assertEquals("text\n", Files.readString(longest));
        refused(folder.resolve("n".repeat(256)));
        assertEquals(1, names().size());
    }

    @Test
    void linksStayAndLeadToWhatIsWritten() throws IOException {
        Path other = Files.createDirectory(folder.resolve("other"));
        Path file = Files.writeString(other.resolve("file"), "old\n");
        Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("other/file"));
        Path second = Files.createSymbolicLink(folder.resolve("second"), link);
        write(second, "new\n");
        assertEquals("new\n", Files.readString(file));
        assertEquals(Path.of("other/file"), Files.readSymbolicLink(link));
        assertEquals(link, Files.readSymbolicLink(second));

        Path none = Files.createSymbolicLink(folder.resolve("none"), Path.of("other/none"));
        write(none, "first\n");
        assertEquals("first\n", Files.readString(other.resolve("none")));
        assertTrue(Files.isSymbolicLink(none));
    }

    @Test
    void aPipeIsWrittenTo() throws Exception {
        Path pipe = folder.resolve("pipe");
        Process made = new ProcessBuilder("mkfifo", pipe.toString()).start();
        assumeTrue(made.waitFor() == 0, "no mkfifo");
        CompletableFuture<String> read =
                CompletableFuture.supplyAsync(() -> {
                    try {
                        return Files.readString(pipe);
                    } catch (IOException e) {
                        throw new IllegalStateException(e);
                    }
                });
        write(pipe, "text\n");
        assertEquals("text\n", read.get(30, TimeUnit.SECONDS));
        assertTrue(Files.exists(pipe) && !Files.isRegularFile(pipe));
        assertEquals(List.of("pipe"), names());
    }

    /** As {@code /dev/stdout}, where the shell has sent it to a file. */
    @Test
    void whatThisProcessHasOpenIsAppendedTo() throws IOException {
        Path descriptors = Path.of("/proc/self/fd");
        assumeTrue(Files.isDirectory(descriptors), "not Linux");
        Path file = folder.toRealPath().resolve("out");
        try (OutputStream out = Files.newOutputStream(file)) {
            out.write("before\n".getBytes(StandardCharsets.UTF_8));
            Path open;
            try (Stream<Path> all = Files.list(descriptors)) {
                open =
                        all.filter(
                                        p -> {
                                            try {
                                                return Files.readSymbolicLink(p).equals(file);
                                            } catch (IOException e) {
                                                return false; // that of the list
                                            }
                                        })
                                .findFirst()
                                .orElseThrow();
            }
            write(open, "text\n");
            write(Files.createSymbolicLink(folder.resolve("link"), open), "more\n");
        }
        assertEquals("before\ntext\nmore\n", Files.readString(file));
        assertEquals(List.of("link", "out"), names());
    }

    /** By the kernel: fs.protected_symlinks. */
    @Test
    void linksThatOthersLeftInAFolderForAllAreNotFollowed() throws IOException {
        Path setting = Path.of("/proc/sys/fs/protected_symlinks");
        assumeTrue(Files.exists(setting) && Files.readString(setting).startsWith("1"), "not set");
        assumeTrue(Files.getAttribute(folder, "unix:uid").equals(0), "needs root");
        Path shared = Files.createDirectory(folder.resolve("shared"));
        Files.setAttribute(shared, "unix:mode", 01777);
        Path file = Files.writeString(folder.resolve("mine"), "old\n");
        Path link = Files.createSymbolicLink(shared.resolve("link"), file);
        Files.setAttribute(link, "unix:uid", 12345, LinkOption.NOFOLLOW_LINKS);
        refused(link);
        assertThrows(IOException.class, () -> Output.write(Map.of(link, "new\n")));
        assertEquals("old\n", Files.readString(file));
        assertTrue(Files.isSymbolicLink(link));
    }

    @Test
    void wrongPlacesAreRefused() throws IOException {
        refused(folder);
        refused(folder.resolve("none/a"));
        refused(Files.createSymbolicLink(folder.resolve("round"), Path.of("round")));
    }

    /** /dev/full refuses every write as a full disk does, and its error names no file. */
    @Test
    void anErrorOfWritingNamesTheFile() throws IOException {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "there is no /dev/full here");
        Path file = folder.resolve("a");
        Files.createSymbolicLink(
                folder.resolve(".jccl." + ProcessHandle.current().pid() + ".0.part"), full);
        Files.createSymbolicLink(folder.resolve("b.part"), full);
        Path other = folder.resolve("b");
        Map<Path, Executable> writers =
                Map.of(
                        file,
                        () -> write(file, "text\n"),
                        full,
                        () -> write(full, "text\n"),
                        other,
                        () -> AtomicFile.write(other, c -> c.write(ByteBuffer.allocate(1))));
        writers.forEach((named, writer) -> {
            String message = String.valueOf(assertThrows(IOException.class, writer).getMessage());
            assertEquals("cannot write " + named + ": No space left on device", message);
        });
    }

    @Test
    void noTwoOptionsWriteOneFileNorOneThatIsRead() throws IOException {
        CommandLine line = new CommandLine(CommandSpec.create());
        Path file = Files.writeString(folder.resolve("a"), "read\n");
        Path same = folder.resolve("./a");
        Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("a"));
        for (Path name : List.of(file, same, link)) {
            OutputFiles files = new OutputFiles(line).add("--json", file);
            String message =
                    String.valueOf(
                            assertThrows(ParameterException.class, () -> files.add("--csv", name))
                                    .getMessage());
            assertEquals("--json and --csv are both '" + name + "'; give two files", message);
            assertThrows(ParameterException.class, () -> files.checkNotRead(List.of(name)));
        }
        new OutputFiles(line)
                .add("--json", file)
                .add("--csv", null)
                .add("--svg", folder.resolve("b"))
                .add("--html", Path.of("/dev/null"))
                .add("--dot", Path.of("/dev/null"))
                .checkNotRead(List.of(folder, folder.resolve("c")));
    }

    /** What /dev/stdin and a shell's {@code <(...)} lead to has no path. */
    @Test
    void aPipeThatIsReadIsNotAFileToWrite() throws IOException {
        OutputFiles files =
                new OutputFiles(new CommandLine(CommandSpec.create()))
                        .add("--json", folder.resolve("a"));
        List<Path> pipes = new ArrayList<>();
        Pipe pipe = Pipe.open();
        try (Pipe.SourceChannel source = pipe.source();
                Pipe.SinkChannel sink = pipe.sink();
                DirectoryStream<Path> open = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
            for (Path fd : open) {
                if (Files.isSymbolicLink(fd)
                        && Files.readSymbolicLink(fd).toString().startsWith("pipe:")) {
                    pipes.add(fd);
                }
            }
            assertTrue(source.isOpen() && sink.isOpen() && !pipes.isEmpty());
            files.checkNotRead(pipes);
        }
    }

    @Test
    void oneOptionIsPrintedAndOnlyIfItCanBe() {
        CommandLine line = new CommandLine(CommandSpec.create());
        Path standard = Path.of("-");
        OutputFiles files = new OutputFiles(line).add(FileOption.of("--dot", standard));
        String twice =
                String.valueOf(
                        assertThrows(
                                        ParameterException.class,
                                        () -> files.add(FileOption.of("--svg", standard)))
                                .getMessage());
        assertTrue(twice.startsWith("--dot and --svg both go to standard output"), twice);
        String never =
                String.valueOf(
                        assertThrows(ParameterException.class, () -> files.add("--html", standard))
                                .getMessage());
        assertEquals("--html is '-', but cannot go to standard output; give a name", never);
        files.add("--csv", Path.of("./-"));
    }

    @Test
    void whatOtherOptionsAndParametersNameIsRead() throws IOException {
        CommandSpec spec =
                CommandSpec.create()
                        .addOption(OptionSpec.builder("--config").type(Path.class).build())
                        .addOption(OptionSpec.builder("-n").type(int.class).build())
                        .addPositional(PositionalParamSpec.builder().type(Path.class).build());
        String file = Files.writeString(folder.resolve("a"), "read\n").toString();
        for (String[] words : List.of(new String[] {"--config", file}, new String[] {file})) {
            CommandLine line = new CommandLine(spec);
            line.parseArgs(words);
            OutputFiles files = new OutputFiles(line).add("--json", Path.of(file));
            assertThrows(ParameterException.class, files::checkNotRead);
            new OutputFiles(line).add("--config", Path.of(file)).add("--csv", folder.resolve("b"));
        }
        CommandLine line = new CommandLine(spec);
        line.parseArgs("-n", "1");
        new OutputFiles(line).add("--json", Path.of(file)).checkNotRead();
    }

    private static void refused(Path wrong) {
        IOException e =
                assertThrows(IOException.class, () -> Output.checkWritable("--json", wrong));
        String message = String.valueOf(e.getMessage());
        assertTrue(message.startsWith("--json '" + wrong + "' cannot be written: "), message);
    }
}

package io.jccl.cli.shell;

import static io.jccl.cli.shell.Text.format;

import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Files that appear whole or not at all; pipes and devices are written to. */
public final class Output {
    private static final String NOT_WRITABLE = "this user may not write to it";

    private Output() {}

    /**
     * Fails before the work rather than after it.
     *
     * @param option the option that names the file
     * @param file where something is to go
     * @throws IOException if it cannot; the message suggests a remedy
     */
    static void checkWritable(String option, Path file) throws IOException {
        String fault = fault(file);
        if (!fault.isEmpty()) {
            throw new IOException(
                    format(
                            "%s '%s' cannot be written: %s; give another file, in a folder that"
                                    + " exists and is writable",
                            option, file, fault));
        }
    }

    /** Why a file cannot be written; empty if it can. */
    private static String fault(Path file) throws IOException {
        if (Files.isDirectory(file)) {
            return "it is a folder";
        }
        Path to;
        try {
            to = AtomicFile.replaceable(file);
        } catch (FileSystemException e) {
            return "the link cannot be followed";
        }
        if (to == null) {
            return Files.isWritable(file) ? "" : NOT_WRITABLE;
        }
        Path folder = folder(to);
        if (!Files.isDirectory(folder)) {
            return "folder " + folder + " does not exist";
        }
        if (!Files.isWritable(folder)) {
            return "folder " + folder + " is not writable";
        }
        try {
            Files.readAttributes(to, BasicFileAttributes.class);
        } catch (NoSuchFileException e) {
            return "";
        } catch (FileSystemException e) {
            return Text.reason(e); // such as a name that is too long
        }
        return Files.isWritable(to) ? "" : NOT_WRITABLE;
    }

    /** The same for all names of a file that can be written; null for a pipe or a device. */
    static @Nullable Path place(Path file) throws IOException {
        Path to = AtomicFile.replaceable(file);
        return to == null
                ? null
                : folder(to).toRealPath().resolve(String.valueOf(to.getFileName()));
    }

    /**
     * Writes files: first all of them under temporary names, then moves them into place, where
     * links lead to. A file that is replaced keeps its permissions. To pipes and devices it
     * appends.
     *
     * @param texts what to write where
     * @throws IOException if one cannot be written; then none has changed, unless moving or
     *     appending failed
     */
    public static void write(Map<Path, String> texts) throws IOException {
        Map<Path, Path> parts = new LinkedHashMap<>();
        Map<Path, String> direct = new LinkedHashMap<>();
        try {
            for (Map.Entry<Path, String> e : texts.entrySet()) {
                Path file = AtomicFile.replaceable(e.getKey());
                if (file == null) {
                    direct.put(e.getKey(), e.getValue());
                    continue;
                }
                // Not createTempFile, whose files other users may not read.
                Path part =
                        folder(file)
                                .resolve(
                                        format(
                                                ".jccl.%s.%s.part",
                                                ProcessHandle.current().pid(), parts.size()));
                parts.put(file, part);
                if (Files.exists(file)) {
                    Files.createFile(part);
                    Files.setPosixFilePermissions(part, Files.getPosixFilePermissions(file));
                }
                write(e.getKey(), part, e.getValue());
            }
            for (Map.Entry<Path, Path> e : parts.entrySet()) {
                AtomicFile.rename(e.getValue(), e.getKey());
            }
            for (Map.Entry<Path, String> e : direct.entrySet()) {
                write(e.getKey(), e.getKey(), e.getValue(), StandardOpenOption.APPEND);
            }
        } finally {
            for (Path part : parts.values()) {
                Files.deleteIfExists(part);
            }
        }
    }

    private static void write(Path named, Path file, String text, OpenOption... how)
            throws IOException {
        try {
            Files.writeString(file, text, how);
        } catch (IOException e) {
            throw AtomicFile.named(named, e);
        }
    }

    /**
     * A text for a terminal.
     *
     * @param text any text
     * @return the text with a question mark for what a terminal would take for a command
     */
    public static String oneLine(String text) {
        StringBuilder b = new StringBuilder(text.length());
        text.codePoints()
                .map(c ->
                        Character.isISOControl(c)
                                        || !Character.isDefined(c)
                                        || Character.getType(c) == Character.FORMAT
                                ? '?'
                                : c)
                .forEach(b::appendCodePoint);
        return b.toString();
    }

    private static Path folder(Path file) {
        Path parent = file.toAbsolutePath().getParent();
        return parent == null ? file.toAbsolutePath() : parent;
    }
}

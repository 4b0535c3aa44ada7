package io.jccl.cli.doctor;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.NotLinkException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * The files that describe a machine. All paths are absolute, and resolved below a root, which in
 * tests is not {@code /}.
 *
 * <p>Nothing here throws or blocks: a file that is absent, not readable or not a regular file is
 * unknown.
 *
 * @param root the folder used as {@code /}
 */
public record MachineFiles(Path root) {
    private static final int LONGEST = 8 << 20;

    /** gpu2 before gpu10. */
    private static final Comparator<String> ORDER =
            Comparator.comparing((String n) -> n.replaceFirst("\\d+$", ""))
                    .thenComparingInt(String::length)
                    .thenComparing(n -> n);

    /** A function that reads a path. */
    private interface Read<T> {
        T from(Path path) throws IOException;
    }

    Path path(String absolute) {
        return root.resolve(absolute.substring(1));
    }

    /** The bytes of a file, cut off after some MiB. */
    Reading<byte[]> bytes(String path) {
        return read(
                path,
                p -> {
                    // Reading a pipe or a device could block or have side effects.
                    if (!Files.readAttributes(p, BasicFileAttributes.class).isRegularFile()) {
                        throw new IOException("no plain file");
                    }
                    try (InputStream in = Files.newInputStream(p)) {
                        return in.readNBytes(LONGEST);
                    }
                });
    }

    /** The content of a file without surrounding white space. */
    Reading<String> text(String path) {
        return bytes(path).map(b -> new String(b, StandardCharsets.UTF_8).strip());
    }

    /** A file's lines; empty ones are left out. */
    Reading<List<String>> lines(String path) {
        return text(path).map(t -> t.lines().filter(l -> !l.isBlank()).toList());
    }

    Reading<Long> number(String path) {
        return text(path).map(Long::parseLong);
    }

    /** The names in a folder, in order; numbers within names are compared as numbers. */
    Reading<List<String>> names(String folder) {
        return read(
                folder,
                p -> {
                    List<String> names = new ArrayList<>();
                    try (DirectoryStream<Path> entries = Files.newDirectoryStream(p)) {
                        for (Path e : entries) {
                            names.add(String.valueOf(e.getFileName()));
                        }
                    }
                    names.sort(ORDER);
                    return List.copyOf(names);
                });
    }

    /** The names in a folder that match; none if the folder cannot be read. */
    List<String> names(String folder, String regex) {
        return names(folder).orElse(List.of()).stream().filter(n -> n.matches(regex)).toList();
    }

    /** The last name of what a link points to. */
    Reading<String> linkName(String path) {
        return read(path, p -> String.valueOf(Files.readSymbolicLink(p).getFileName()));
    }

    /** A path without links, as seen from the root. */
    Reading<String> realPath(String path) {
        return read(path, p -> "/" + root.toRealPath().relativize(p.toRealPath()));
    }

    boolean exists(String path) {
        return read(path, p -> Files.exists(p, LinkOption.NOFOLLOW_LINKS)).orElse(false);
    }

    private <T> Reading<T> read(String path, Read<T> read) {
        try {
            return Reading.known(read.from(path(path)));
        } catch (NoSuchFileException e) {
            return Reading.unknown("no " + path);
        } catch (NotDirectoryException | NotLinkException e) {
            return Reading.unknown(path + " is something else");
        } catch (AccessDeniedException e) {
            return Reading.unknown("not allowed to read " + path);
        } catch (IOException | InvalidPathException | DirectoryIteratorException e) {
            return Reading.unknown("cannot read " + path + ": " + Bounded.reason(e));
        }
    }
}

package io.jccl.topology.read;

import io.jccl.topology.CpuList;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Reads the small files of {@code /sys}. What cannot be read is missing: nothing throws. */
final class SysFiles {
    /** No attribute of /sys is longer than a page; of /proc/cpuinfo only the start is needed. */
    private static final int MAX_BYTES = 64 << 10;

    private SysFiles() {}

    /** The file without blanks around it, or null if it is missing, empty or unreadable. */
    static @Nullable String text(Path file) {
        try (InputStream in = Files.newInputStream(file)) {
            String text = new String(in.readNBytes(MAX_BYTES), StandardCharsets.UTF_8).strip();
            return text.isEmpty() ? null : text;
        } catch (IOException | SecurityException e) {
            return null;
        }
    }

    /** A decimal number, or {@code otherwise}. */
    static int number(Path file, int otherwise) {
        String text = text(file);
        if (text != null) {
            try {
                return Integer.parseInt(text);
            } catch (NumberFormatException e) {
                return otherwise;
            }
        }
        return otherwise;
    }

    /** The entries of a directory by name; none if there is no such directory. */
    static List<Path> list(Path directory) {
        List<Path> all = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(directory)) {
            entries.forEach(all::add);
        } catch (IOException
                | DirectoryIteratorException
                | UncheckedIOException
                | SecurityException e) {
            return List.of();
        }
        Collections.sort(all);
        return all;
    }

    /** Where links lead to, or null. */
    static @Nullable Path real(Path path) {
        try {
            return path.toRealPath();
        } catch (IOException | SecurityException e) {
            return null;
        }
    }

    /** The CPUs of a list in a file; none if there is no such file. */
    static BitSet cpus(Path file) {
        String list = text(file);
        return list == null ? new BitSet() : cpus(list);
    }

    /** The CPUs of a list, without parts that are none. */
    static BitSet cpus(String list) {
        BitSet set = new BitSet();
        for (String part : list.split(",", -1)) {
            try {
                set.or(CpuList.parse(part));
            } catch (NumberFormatException e) {
                // Left out.
            }
        }
        return set;
    }
}

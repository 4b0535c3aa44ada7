package io.jccl.topology.read;

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

    /** More than any machine has; bounds what a damaged list can make of a few bytes. */
    static final int MAX_CPUS = 1 << 16;

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

    /** A list such as {@code 0-3,8,10-11}; parts that are none are left out. */
    static BitSet cpuList(@Nullable String text) {
        BitSet set = new BitSet();
        if (text == null) {
            return set;
        }
        for (String part : text.split(",", -1)) {
            String[] ends = part.strip().split("-", 2);
            try {
                int first = Integer.parseInt(ends[0]);
                int last = ends.length == 1 ? first : Integer.parseInt(ends[1]);
                if (first >= 0 && first <= last && last < MAX_CPUS) {
                    set.set(first, last + 1);
                }
            } catch (NumberFormatException e) {
                // Left out.
            }
        }
        return set;
    }

    /** The reverse of {@link #cpuList}. */
    static String cpuList(BitSet set) {
        StringBuilder s = new StringBuilder();
        for (int first = set.nextSetBit(0); first >= 0; ) {
            int end = set.nextClearBit(first);
            s.append(s.isEmpty() ? "" : ",").append(first);
            if (end - 1 > first) {
                s.append('-').append(end - 1);
            }
            first = set.nextSetBit(end);
        }
        return s.toString();
    }
}

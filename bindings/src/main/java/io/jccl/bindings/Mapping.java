package io.jccl.bindings;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/**
 * Executable pages of a file in this process, as a line of {@code /proc/self/maps} has them. Pages
 * that cannot be executed do not count: a tool may map a library only to read it.
 *
 * @param start first address
 * @param end first address after it
 * @param file device and inode, which distinguish two files with one path
 * @param path the file
 * @param deleted whether the file has no such name any more, because it was deleted or replaced
 */
record Mapping(long start, long end, String file, String path, boolean deleted) {
    private static final String DELETED = " (deleted)";
    private static final Pattern SPACES = Pattern.compile(" +");

    /** Parses the whole text; only lines of executable file pages are kept. */
    static List<Mapping> parse(String maps) {
        List<Mapping> found = new ArrayList<>();
        maps.lines().forEach(line -> parseLine(line).ifPresent(found::add));
        return found;
    }

    private static Optional<Mapping> parseLine(String line) {
        if (line.indexOf('/') < 0) {
            return Optional.empty();
        }
        // Address range, permissions, offset, device, inode, and the rest is the path.
        String[] fields = SPACES.split(line, 6);
        int dash = fields[0].indexOf('-');
        if (fields.length < 6
                || dash < 0
                || !fields[1].contains("x")
                || !fields[5].startsWith("/")) {
            return Optional.empty();
        }
        String path = fields[5];
        boolean deleted = path.endsWith(DELETED);
        if (deleted) {
            path = path.substring(0, path.length() - DELETED.length());
        }
        try {
            return Optional.of(
                    new Mapping(
                            Long.parseUnsignedLong(fields[0], 0, dash, 16),
                            Long.parseUnsignedLong(fields[0], dash + 1, fields[0].length(), 16),
                            fields[3] + " " + fields[4],
                            path,
                            deleted));
        } catch (NumberFormatException e) {
            return Optional.empty();
        }
    }

    boolean contains(long address) {
        return Long.compareUnsigned(address, start) >= 0 && Long.compareUnsigned(address, end) < 0;
    }

    /** The last part of the path. */
    String name() {
        return path.substring(path.lastIndexOf('/') + 1);
    }
}

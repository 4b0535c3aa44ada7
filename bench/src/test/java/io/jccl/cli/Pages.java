package io.jccl.cli;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The Markdown of the repository, for tests that read it. */
final class Pages {
    static final Path ROOT = Path.of("..");

    private static final Pattern SPAN = Pattern.compile("`([^`]+)`");

    private Pages() {}

    /** All pages for users and contributors. */
    static List<Path> all() throws IOException {
        try (Stream<Path> docs = Files.walk(ROOT.resolve("docs"));
                Stream<Path> top = Files.list(ROOT)) {
            return Stream.concat(
                            Stream.concat(docs, top),
                            Stream.of(ROOT.resolve("bench/peers/README.md")))
                    .filter(p -> p.toString().endsWith(".md"))
                    .sorted()
                    .toList();
        }
    }

    /** Code of a page: each line of a block, each span in a line, continued lines joined. */
    static List<String> code(Path page) throws IOException {
        List<String> all = new ArrayList<>();
        boolean block = false;
        for (String line : Files.readString(page).replace("\\\n", " ").lines().toList()) {
            if (line.strip().startsWith("```")) {
                block = !block;
            } else if (block) {
                all.add(line.replaceFirst(" #.*", ""));
            } else {
                Matcher span = SPAN.matcher(line);
                while (span.find()) {
                    all.add(span.group(1));
                }
            }
        }
        return all;
    }

    /** A page without its blocks of code, whose lines are empty. */
    static List<String> prose(Path page) throws IOException {
        List<String> all = new ArrayList<>();
        boolean block = false;
        for (String line : Files.readAllLines(page)) {
            boolean fence = line.strip().startsWith("```");
            all.add(block || fence ? "" : line);
            block ^= fence;
        }
        return all;
    }
}

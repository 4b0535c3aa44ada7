package io.jccl.testfake;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.jccl.testfake.FakeBuild.Ended;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * What a library answers, from a table in {@code src/test/c}: a rule's name, columns of answers,
 * and what else the table says. A program beside the table asks the fake of the library.
 */
final class RuleTable {
    private final Map<String, String[]> rules = new LinkedHashMap<>();

    /**
     * Reads a table.
     *
     * @param columns of each line; the last one may contain blanks
     */
    RuleTable(String file, int columns) throws IOException {
        for (String line : Files.readAllLines(FakeBuild.sources().resolve(file))) {
            if (line.isBlank() || line.startsWith("#")) {
                continue;
            }
            String[] words = line.split(" +", columns);
            assertEquals(columns, words.length, line);
            assertNull(rules.put(words[0], words), "rule stands twice: " + words[0]);
        }
    }

    Map<String, String[]> rules() {
        return rules;
    }

    /**
     * Runs a program, which prints lines that begin with a rule and end with an answer, and
     * compares all answers with a column.
     */
    void check(int column, String program, String... arguments) {
        List<String> command = new ArrayList<>();
        command.add(FakeBuild.home().resolve(Path.of("bin", program)).toString());
        command.addAll(List.of(arguments));
        Ended ended = FakeBuild.run(Map.of(), command);
        assertEquals(0, ended.status(), ended.output());
        Set<String> unasked = new TreeSet<>(rules.keySet());
        List<String> wrong = new ArrayList<>();
        for (String line : ended.output().lines().toList()) {
            String[] rule = rules.get(line.substring(0, line.indexOf(' ')));
            if (rule == null) {
                wrong.add("no rule: " + line);
                continue;
            }
            unasked.remove(rule[0]);
            if (!allows(rule[column], line.substring(line.lastIndexOf(' ') + 1))) {
                wrong.add(line + ", but the table says " + Arrays.toString(rule));
            }
        }
        assertAll(
                () -> assertEquals(List.of(), wrong),
                () -> assertEquals(Set.of(), unasked, "rules that nothing asked for"));
    }

    /** Alternatives stand between bars; a number after ~ may be half as large or twice. */
    private static boolean allows(String expected, String answer) {
        if (expected.startsWith("~") && answer.matches("\\d+")) {
            int about = Integer.parseInt(expected.substring(1));
            int is = Integer.parseInt(answer);
            return is >= about / 2 && is <= 2 * about;
        }
        return List.of(expected.split("\\|")).contains(answer);
    }
}

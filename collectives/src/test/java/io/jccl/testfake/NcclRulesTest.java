package io.jccl.testfake;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testfake.FakeBuild.Ended;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The fake answers as NCCL 2.30.7 does: {@code src/test/c/nccl_rules.c} asks, {@code
 * src/test/c/nccl_rules.txt} holds the answers with their places in NCCL's source.
 */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class NcclRulesTest {
    /** A line of the table: the possible answers of non-blocking and blocking communicators. */
    private record Rule(Set<String> nonblocking, Set<String> blocking, String source) {
        Set<String> answers(boolean blocks) {
            return blocks ? blocking : nonblocking;
        }
    }

    private static Map<String, Rule> table() throws IOException {
        Map<String, Rule> rules = new LinkedHashMap<>();
        for (String line : Files.readAllLines(FakeBuild.sources().resolve("nccl_rules.txt"))) {
            if (line.isBlank() || line.startsWith("#")) {
                continue;
            }
            String[] columns = line.split(" +", 4);
            assertEquals(4, columns.length, line);
            Rule rule = new Rule(either(columns[1]), either(columns[2]), columns[3]);
            assertEquals(null, rules.put(columns[0], rule), "rule stands twice: " + columns[0]);
        }
        return rules;
    }

    private static Set<String> either(String column) {
        return Set.of(column.split("\\|"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void answerLikeNccl(boolean blocking) throws IOException {
        Path program = FakeBuild.home().resolve("bin").resolve("nccl_rules");
        Ended ended = FakeBuild.run(Map.of(), List.of(program.toString(), blocking ? "1" : "0"));
        assertEquals(0, ended.status(), ended.output());
        Map<String, Rule> unasked = table();
        Map<String, Rule> rules = Map.copyOf(unasked);
        List<String> wrong = new ArrayList<>();
        for (String line : ended.output().lines().toList()) {
            String[] answer = line.split(" ", 3);
            Rule rule = rules.get(answer[0]);
            if (rule == null) {
                wrong.add("no rule: " + line);
                continue;
            }
            unasked.remove(answer[0]);
            Set<String> possible = rule.answers(blocking);
            if (!possible.contains(answer[2])) {
                wrong.add(
                        "%s, rank %s: %s, but NCCL answers %s (%s)"
                                .formatted(
                                        answer[0], answer[1], answer[2], possible, rule.source()));
            }
        }
        assertAll(
                () -> assertEquals(List.of(), wrong),
                () -> assertEquals(Set.of(), unasked.keySet(), "rules that nothing asked for"));
    }

    @Test
    void nameAPlaceInNcclForEachRule() throws IOException {
        Map<String, Rule> rules = table();
        assertTrue(rules.size() > 100, () -> "rules: " + rules.size());
        rules.forEach((name, rule) ->
                assertTrue(
                        rule.source().matches("[a-z_]+\\.cc:\\d+.*"),
                        () -> name + " has no place: " + rule.source()));
    }
}

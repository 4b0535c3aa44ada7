package io.jccl.testfake;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
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
    /** Rule, answer of non-blocking and of blocking communicators, place in NCCL's source. */
    private static RuleTable table() throws IOException {
        return new RuleTable("nccl_rules.txt", 4);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void answerLikeNccl(boolean blocking) throws IOException {
        table().check(blocking ? 2 : 1, "nccl_rules", blocking ? "1" : "0");
    }

    @Test
    void nameAPlaceInNcclForEachRule() throws IOException {
        Map<String, String[]> rules = table().rules();
        assertTrue(rules.size() > 100, () -> "rules: " + rules.size());
        rules.forEach((name, rule) ->
                assertTrue(
                        rule[3].matches("[a-z_]+\\.cc:\\d+.*"),
                        () -> name + " has no place: " + rule[3]));
    }
}

package io.jccl.topology;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;
import org.junit.jupiter.api.Assumptions;

/**
 * What tests need of the machine. Where it is missing a test is skipped with the reason, unless the
 * system property {@code jccl.test.require} or the variable {@code JCCL_TEST_REQUIRE} lists the
 * need, or is {@code all}: then the test fails. The list may hold needs of other modules.
 */
public enum Need {
    /** The folder of real dumps, which is not part of the repository. */
    TOPO;

    private static final Set<Need> REQUIRED =
            parse(
                    System.getProperty(
                            "jccl.test.require",
                            System.getenv().getOrDefault("JCCL_TEST_REQUIRE", "")));

    static Set<Need> parse(String list) {
        if (list.strip().equals("all")) {
            return EnumSet.allOf(Need.class);
        }
        Set<Need> needs = EnumSet.noneOf(Need.class);
        Arrays.stream(list.split(",", -1))
                .map(name -> name.strip().toUpperCase(Locale.ROOT))
                .forEach(name ->
                        Arrays.stream(values())
                                .filter(need -> need.name().equals(name))
                                .forEach(needs::add));
        return needs;
    }

    /**
     * Ends a test that cannot run here.
     *
     * @param reason what is missing
     * @return never; declared so that a caller can throw it
     */
    public RuntimeException absent(String reason) {
        return absent(reason, REQUIRED);
    }

    RuntimeException absent(String reason, Set<Need> required) {
        if (required.contains(this)) {
            throw new AssertionError(
                    "JCCL_TEST_REQUIRE lists "
                            + name().toLowerCase(Locale.ROOT)
                            + ", but "
                            + reason);
        }
        return Assumptions.abort(reason);
    }
}

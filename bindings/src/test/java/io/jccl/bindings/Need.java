package io.jccl.bindings;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;
import org.junit.jupiter.api.Assumptions;

/**
 * What tests need of the machine. Where it is missing a test is skipped with the reason, unless the
 * system property {@code jccl.test.require} or the variable {@code JCCL_TEST_REQUIRE} lists the
 * need, such as {@code nccl,cc}, or is {@code all}: then the test fails.
 */
enum Need {
    /** A C compiler. */
    CC,
    /** NCCL with its header. */
    NCCL,
    /** The CUDA runtime with its headers. */
    CUDART,
    /** cuBLAS with its header. */
    CUBLAS,
    /** Open MPI with its header. */
    MPI,
    /** MPICH with its header. */
    MPICH,
    /** The folder of real dumps of topologies, which other modules' tests read. */
    TOPO,
    /** A browser that shows pages without a screen, which other modules' tests start. */
    CHROMIUM;

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
                .map(String::strip)
                .filter(name -> !name.isEmpty())
                .map(name -> Need.valueOf(name.toUpperCase(Locale.ROOT)))
                .forEach(needs::add);
        return needs;
    }

    /** Whether a skip for lack of it is forbidden. */
    boolean isRequired() {
        return REQUIRED.contains(this);
    }

    /**
     * Ends a test that cannot run here.
     *
     * @param reason what is missing
     * @return never; declared so that a caller can throw it
     */
    RuntimeException absent(String reason) {
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

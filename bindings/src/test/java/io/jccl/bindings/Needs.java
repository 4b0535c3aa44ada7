package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.List;

/**
 * What some tests need of the machine. Without it they are skipped with the reason, unless the
 * system property {@code jccl.test.require} names it, or is {@code all}: then they fail.
 */
final class Needs {
    private static final List<String> REQUIRED =
            List.of(System.getProperty("jccl.test.require", "").split(",", -1));

    private Needs() {}

    static void that(boolean present, String what, String otherwise) {
        if (!present && (REQUIRED.contains(what) || REQUIRED.contains("all"))) {
            fail(otherwise + ", and jccl.test.require does not let this test be skipped");
        }
        assumeTrue(present, otherwise);
    }
}

package io.jccl.cli.check;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.cli.Main;
import io.jccl.device.Cuda;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SelfTestCommandTest {
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int jccl(String line) {
        return Main.execute(line.split(" ", -1), new PrintWriter(out), new PrintWriter(err));
    }

    @ParameterizedTest
    @ValueSource(ints = {257, 1000})
    void moreRanksThanAMachineTakesAreRefusedInOneLine(int ranks) {
        assertEquals(2, jccl("selftest -g " + ranks));
        assertEquals(
                "jccl selftest: -g/--ranks is "
                        + ranks
                        + ", expected 1 to 256; try 'jccl selftest --help'",
                err.toString().strip());
        assertEquals("", out.toString());
    }

    @Test
    void planThatCannotBeReadIsNamedInWordsOfThisCommand() {
        assertEquals(2, jccl("all_reduce --engine nccl --plan /no/such/file"));
        String text = err.toString();
        assertTrue(text.contains("--plan '/no/such/file' cannot be read: there is no such"), text);
        assertTrue(!text.contains("Exception"), text);
    }

    /** Not that there are too many ranks: no number of them would do. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "all_reduce --engine nccl -g 1",
                "all_reduce --engine nccl",
                "selftest --engine nccl",
                "selftest --engine nccl -g 3"
            })
    void ncclWithoutAGpuSaysThatThereIsNone(String line) {
        assumeTrue(Cuda.deviceCount() == 0, "this machine has a GPU");
        assertEquals(2, jccl(line));
        String text = err.toString();
        assertTrue(text.contains("sees no GPU") && text.contains("jccl doctor"), text);
        assertTrue(!text.contains("fewer ranks"), text);
        assertEquals(1, text.strip().lines().count(), text);
    }
}

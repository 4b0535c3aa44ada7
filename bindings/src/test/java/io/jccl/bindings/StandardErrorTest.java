package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.internal.StandardError;
import io.jccl.error.JcclException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class StandardErrorTest {
    /** Writes a line to standard error before and after. */
    static final class Main {
        private Main() {}

        public static void main(String[] args) {
            System.err.println("before");
            StandardError.replaceBy(Integer.parseInt(args[0]));
            System.err.println("after");
        }
    }

    @Test
    @Timeout(value = 1, unit = TimeUnit.MINUTES)
    void whatIsWrittenAfterwardsGoesThere(@TempDir Path folder) throws Exception {
        Path first = folder.resolve("first");
        Path second = folder.resolve("second");
        // A class path may have spaces.
        String script = "first=$1 second=$2; shift 2; exec \"$@\" 2>\"$first\" 3>\"$second\"";
        List<String> command =
                List.of(
                        "sh",
                        "-c",
                        script,
                        "sh",
                        first.toString(),
                        second.toString(),
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "--enable-native-access=ALL-UNNAMED",
                        "-cp",
                        ChildJvm.rootOf(NativeLibraries.class)
                                + ":"
                                + ChildJvm.rootOf(StandardErrorTest.class),
                        Main.class.getName(),
                        "3");
        Process shell = new ProcessBuilder(command).inheritIO().start();
        assertEquals(0, shell.waitFor());
        assertTrue(Files.readString(first).contains("before"), Files.readString(first));
        assertEquals("after\n", Files.readString(second));
    }

    @Test
    void whatIsNotOpenIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> StandardError.replaceBy(2));
        JcclException e =
                assertThrows(JcclException.class, () -> StandardError.replaceBy(1_000_000));
        assertEquals("file 1000000 cannot be standard error: it is not open", e.getMessage());
    }
}

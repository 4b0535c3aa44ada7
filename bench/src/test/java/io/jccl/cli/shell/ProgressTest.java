package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.PrintWriter;
import java.io.StringWriter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ProgressTest {
    private final StringWriter text = new StringWriter();
    private long now;

    private Progress progress(boolean terminal) {
        return progress(terminal, "");
    }

    private Progress progress(boolean terminal, String asked) {
        return new Progress(new PrintWriter(text), () -> terminal, asked, () -> now);
    }

    @Test
    void showsNothingUnlessARunLasts() {
        Progress p = progress(true);
        p.show("a");
        p.erase();
        assertEquals("", text.toString());
        now = 2_000_000_000L;
        p.show("b");
        p.show("c");
        p.erase();
        p.erase();
        assertEquals("\r\033[Kb\r\033[Kc\r\033[K", text.toString());
    }

    @Test
    void showsRateAndTimeLeft() {
        Progress p = progress(true);
        p.at("soak", 0, 1000, "operations");
        now = 2_000_000_000L;
        p.at("soak", 100, 1000, "operations");
        assertEquals("\r\033[Ksoak: 100 of 1000 operations, 50/s, 0:18 left", text.toString());
        // Not more than ten times a second.
        now = 2_050_000_000L;
        p.at("soak", 110, 1000, "operations");
        p.erase();
        assertEquals(1, text.toString().lines().filter(l -> l.contains("operations")).count());
        text.getBuffer().setLength(0);
        // Another total is another run, with a rate of its own.
        now = 10_000_000_000L;
        p.at("train", 5, 7205, "steps");
        now = 20_000_000_000L;
        p.at("train", 15, 7205, "steps");
        assertEquals(
                "\r\033[Ktrain: 5 of 7205 steps\r\033[Ktrain: 15 of 7205 steps, 1.00/s,"
                        + " 1:59:50 left",
                text.toString());
    }

    @Test
    void showsTimeLeftOfWhatCannotBeCounted() {
        Progress p = progress(true);
        p.at("probe", 0.1);
        now = 2_000_000_000L;
        p.at("probe", 0.3);
        now = 6_000_000_000L;
        p.at("probe", 1.2);
        assertEquals(
                "\r\033[Kprobe: 30 %, 0:07 left\r\033[Kprobe: 100 %, 0:00 left", text.toString());
    }

    @Test
    void writesLinesToAPipeIfAsked() {
        Progress p = progress(false, "1");
        for (now = 0; now <= 8_000_000_000L; now += 1_000_000_000L) {
            p.at("soak", now / 1_000_000_000L, 10, "operations");
            p.erase();
        }
        assertEquals(
                """
                soak: 2 of 10 operations, 1.00/s, 0:08 left
                soak: 7 of 10 operations, 1.00/s, 0:03 left
                """,
                text.toString().replace(System.lineSeparator(), "\n"));
    }

    @Test
    void writesNothingIfAskedNotTo() {
        Progress p = progress(true, "0");
        now = 2_000_000_000L;
        p.show("a");
        p.erase();
        assertEquals("", text.toString());
    }

    @ParameterizedTest
    @CsvSource({"/dev/pts/0,true", "/dev/tty1,true", "/dev/console,true", "/dev/null,false"})
    @CsvSource({"pipe:[4711],false", "/tmp/err.txt,false", "socket:[1],false"})
    void knowsTerminals(String file, boolean terminal) {
        assertEquals(terminal, Progress.isTerminal(file));
    }

    @Test
    void writesNothingToAPipe() {
        Progress p = progress(false);
        now = 2_000_000_000L;
        p.show("a");
        p.erase();
        assertEquals("", text.toString());
    }
}

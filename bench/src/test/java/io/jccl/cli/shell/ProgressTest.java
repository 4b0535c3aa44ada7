package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.PrintWriter;
import java.io.StringWriter;
import org.junit.jupiter.api.Test;

class ProgressTest {
    private final StringWriter text = new StringWriter();
    private long now;

    private Progress progress(boolean terminal) {
        return new Progress(new PrintWriter(text), () -> terminal, () -> now);
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
    void writesNothingToAPipe() {
        Progress p = progress(false);
        now = 2_000_000_000L;
        p.show("a");
        p.erase();
        assertEquals("", text.toString());
    }
}

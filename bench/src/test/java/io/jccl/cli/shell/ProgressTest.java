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
    void writesNothingToAPipe() {
        Progress p = progress(false);
        now = 2_000_000_000L;
        p.show("a");
        p.erase();
        assertEquals("", text.toString());
    }
}

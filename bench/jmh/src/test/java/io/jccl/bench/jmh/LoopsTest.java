package io.jccl.bench.jmh;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The loops start as their scripts start them. */
class LoopsTest {
    private record Outcome(int status, String out, String err) {}

    private static Outcome run(String line) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        String[] args = line.isEmpty() ? new String[0] : line.split(" ");
        int status = Loops.execute(args, new PrintWriter(out), new PrintWriter(err));
        return new Outcome(status, out.toString(), err.toString());
    }

    @Test
    void theLauncherKnowsThem() throws IOException {
        String launcher = Files.readString(Path.of("../../jccl"));
        Matcher words = Pattern.compile("\\n +jmh \\| ([a-z| -]+-loop)\\)").matcher(launcher);
        assertTrue(words.find(), "no loops in the launcher");
        List<String> known = Arrays.asList(words.group(1).split(" \\| "));
        assertEquals(List.copyOf(Loops.ALL.keySet()), known.stream().sorted().toList());
    }

    @Test
    void eachExplainsItself() {
        for (String name : Loops.ALL.keySet()) {
            Outcome o = run(name + " --help");
            assertEquals(0, o.status, o::toString);
            assertTrue(o.out.startsWith("Usage: jccl " + name), o::toString);
        }
    }

    @Test
    void mistakesAreExplained() {
        for (String line : List.of("", "gpu-loop")) {
            Outcome o = run(line);
            assertEquals(2, o.status, o::toString);
            assertTrue(o.err.contains("expected one of [adam-loop, ddp-loop, "), o::toString);
        }
        Outcome e = run("enqueue-loop --rounds 0");
        assertEquals(2, e.status, e::toString);
        assertTrue(e.err.contains("--rounds are [2, 50, 0], expected 1 or more"), e::toString);
        Outcome o = run("peer-loop --size 8");
        assertEquals(2, o.status, o::toString);
        assertTrue(o.err.contains("jccl peer-loop"), o::toString);
    }

    /** The lines that the scripts take apart. */
    @Tag("exhaustive")
    @Test
    void printsWhatTheScriptsRead(@TempDir Path folder) {
        Outcome o = run("peer-loop -g 2 --max-iterations 4 --repetitions 1 64");
        assertEquals(0, o.status, o::toString);
        assertTrue(o.out.strip().matches("64 [0-9.]+"), o::toString);

        o = run("nvme-loop --bytes 1048576 --block 65536 --slot 1048576 " + folder);
        assertEquals(0, o.status, o::toString);
        assertTrue(
                o.out.strip()
                        .matches("(?s).*write [0-9.]+ MB.*commit [0-9.]+ s.*read [0-9.]+ MB.*"),
                o::toString);

        o = run("store-loop --clients 4 --rounds 1");
        assertEquals(0, o.status, o::toString);
        assertTrue(o.out.contains("4 clients joined in "), o::toString);
    }
}

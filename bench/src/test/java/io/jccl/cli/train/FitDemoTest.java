package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import io.jccl.train.fit.TechniqueSet;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

@Timeout(value = 300, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FitDemoTest {
    @TempDir private Path folder;

    private record Result(int status, String out, String err) {}

    private static Result run(String line) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                Main.execute(
                        ("fit-demo " + line).strip().split(" +"),
                        new PrintWriter(out),
                        new PrintWriter(err));
        return new Result(status, out.toString(), err.toString());
    }

    /** The whole experiment once, small, and all that can be said about it. */
    @Tag("exhaustive")
    @Test
    void everyTechniqueCountsAndTheFilesAreWellFormed() throws Exception {
        Path drive = Files.createDirectory(folder.resolve("drive"));
        Path svg = folder.resolve("fit.svg");
        Path html = folder.resolve("fit.html");
        Result r =
                run(
                        "--quick --device-memory 620K --json --nvme "
                                + drive
                                + " --svg "
                                + svg
                                + " --html "
                                + html);
        assertEquals(0, r.status, r::toString);
        try (Stream<Path> left = Files.list(drive)) {
            assertEquals(List.of(), left.toList(), "files were left on the drive");
        }

        JsonNode top = new ObjectMapper().readTree(r.out).get("jccl_fit_demo");
        Map<String, JsonNode> sets = new HashMap<>();
        for (JsonNode set : top.get("sets")) {
            sets.put(set.get("name").asText(), set);
            for (JsonNode run : set.get("runs")) {
                String what = set.get("name") + " " + run;
                assertTrue(
                        run.get("last_loss").asDouble() < run.get("first_loss").asDouble(), what);
                assertTrue(run.get("samples_per_second").asDouble() > 0, what);
                assertTrue(within(run, "device_peak_bytes", top, "device_bytes"), what);
                assertTrue(within(run, "host_peak_bytes", top, "host_bytes"), what);
                assertTrue(within(run, "nvme_peak_bytes", top, "nvme_bytes"), what);
                assertEquals(
                        set.get("nvme_offload").asBoolean(),
                        run.get("nvme_peak_bytes").asLong() > 0,
                        what);
            }
            JsonNode stopped = set.get("stopped_by");
            assertTrue(
                    stopped.get("asked_bytes").asLong() > stopped.get("free_bytes").asLong(),
                    set::toString);
            // One block more.
            assertEquals(
                    12L * 32 * 32,
                    stopped.get("parameters").asLong() - set.get("largest_parameters").asLong(),
                    set::toString);
        }
        assertEquals(TechniqueSet.SETS.size(), sets.size());
        long all = largest(sets, "all");
        for (TechniqueSet set : TechniqueSet.SETS) {
            if (!set.equals(TechniqueSet.ALL)) {
                assertTrue(
                        largest(sets, set.name()) < all,
                        () -> set.title() + " makes no difference: " + r.out);
            }
        }
        assertTrue(largest(sets, "no-zero-1") < largest(sets, "no-zero-2"), r.out);
        assertTrue(largest(sets, "no-zero-2") < largest(sets, "no-zero-3"), r.out);
        assertTrue(all > 10 * largest(sets, "plain"), r.out);

        Document picture =
                DocumentBuilderFactory.newDefaultInstance()
                        .newDocumentBuilder()
                        .parse(svg.toFile());
        assertEquals(
                TechniqueSet.SETS.size(), picture.getElementsByTagName("polyline").getLength());
        int runs = 0;
        for (JsonNode set : sets.values()) {
            runs += set.get("runs").size();
        }
        NodeList dots = picture.getElementsByTagName("circle");
        assertEquals(runs, dots.getLength());
        for (int i = 0; i < dots.getLength(); i++) {
            Element dot = (Element) dots.item(i);
            // Its curve, its chart.
            Element chart = (Element) dot.getParentNode().getParentNode();
            Element plot = (Element) chart.getElementsByTagName("rect").item(0);
            assertEquals("plot", plot.getAttribute("class"));
            double x = number(dot, "cx") - number(plot, "x");
            double y = number(dot, "cy") - number(plot, "y");
            assertTrue(
                    x >= 0 && x <= number(plot, "width") && y >= 0 && y <= number(plot, "height"),
                    x + ", " + y);
        }
        // The largest of each as a bar.
        NodeList shapes = picture.getElementsByTagName("rect");
        int bars = 0;
        for (int i = 0; i < shapes.getLength(); i++) {
            String style = ((Element) shapes.item(i)).getAttribute("class");
            bars += style.equals("fill bar") ? 1 : 0;
        }
        assertEquals(TechniqueSet.SETS.size(), bars);
        String page = Files.readString(html);
        assertTrue(page.contains("<svg") && page.contains("all but NVMe offload"), page);
        // Nothing is loaded from elsewhere.
        assertFalse(page.contains("src="), page);
        assertFalse(page.contains("<link"), page);
    }

    private static double number(Element e, String attribute) {
        return Double.parseDouble(e.getAttribute(attribute));
    }

    private static boolean within(JsonNode run, String peak, JsonNode top, String budget) {
        return run.get(peak).asLong() <= top.get(budget).asLong();
    }

    private static long largest(Map<String, JsonNode> sets, String name) {
        return Objects.requireNonNull(sets.get(name)).get("largest_parameters").asLong();
    }

    @Test
    void theTableNamesWhatStoppedTheNextSize() {
        Result r = run("--quick --only plain,no-nvme-offload --host-memory 900K");
        assertEquals(0, r.status, r::toString);
        List<String> lines = r.out.lines().filter(l -> !l.startsWith("#")).toList();
        assertEquals(3, lines.size(), r.out);
        assertTrue(lines.get(1).startsWith("plain data parallelism"), r.out);
        assertTrue(lines.get(1).contains("1.0"), r.out);
        assertTrue(lines.get(1).contains("DEVICE: "), r.out);
        assertTrue(lines.get(2).startsWith("all but NVMe offload"), r.out);
        assertTrue(lines.get(2).contains("PINNED: "), r.out);
    }

    @Tag("exhaustive")
    @Test
    void theLargestToTryEndsTheSearch() throws IOException {
        Result r = run("--quick --only all --max-blocks 3 --json");
        assertEquals(0, r.status, r::toString);
        JsonNode set = new ObjectMapper().readTree(r.out).at("/jccl_fit_demo/sets/0");
        assertTrue(set.get("stopped_by").isNull(), r.out);
        assertTrue(set.get("times_plain").isNull(), r.out);
        assertEquals(3, set.get("runs").size(), r.out);
        assertEquals(3, set.at("/runs/2/blocks").asInt(), r.out);
    }

    @Test
    void whatDoesNotLearnIsSaidAfterAllResults() {
        Result r = run("--quick --only plain --max-blocks 1 --lr 5");
        assertEquals(1, r.status, r::toString);
        assertTrue(r.out.contains("plain data parallelism"), r::toString);
        assertTrue(r.err.contains("with 1 blocks does not learn: the loss went from 3."), r.err);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "--quick --only plain --device-memory 300K | --device-memory is 307200 bytes, too small for one block",
                "--quick --only all --host-memory 100K | --host-memory is 102400 bytes, too small for one block",
                "--quick --only all --nvme-memory 100K | --nvme-memory is 102400 bytes, too small for one block",
                "--quick --only all --nvme-memory 1K | --nvme-memory is 1024 bytes, too small for one block",
                "--only everything | --only is 'everything', expected some of plain, all, no-accumulation",
                "--hidden 40 | --hidden is 40, expected a multiple of 32",
                "--hidden 16 | --hidden is 16, expected 32 to 4096",
                "--batch 100 | --batch is 100, expected a multiple of 8, ranks times micro-batches",
                "--steps 1 | --steps is 1, expected 2 to 1000",
                "--ranks 0 | --ranks is 0, expected 1 to 64",
                "--lr 0 | --lr is 0.0, expected a number above 0",
                "--device-memory 0 | --device-memory is 0 bytes, expected 2 to",
                "--device-memory lots | 'lots' is not a number of bytes",
                "--nvme /no/such/folder | --nvme '/no/such/folder' is not a folder that can be written",
            })
    void mistakesSayWhatIsExpected(String line, String message) {
        Result r = run(line);
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains(message), r::toString);
        assertFalse(r.err.contains("\tat "), r::toString);
        assertEquals("", r.out);
    }

    @Test
    void aFileThatCannotBeWrittenIsSaidFirst() {
        Result r = run("--svg /no/such/folder/fit.svg");
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains("folder /no/such/folder does not exist"), r::toString);
    }
}

package io.jccl.cli.report;

import static io.jccl.cli.report.ReportCommandTest.elements;
import static io.jccl.cli.report.ReportCommandTest.jccl;
import static io.jccl.cli.report.ReportCommandTest.page;
import static io.jccl.cli.report.ReportCommandTest.texts;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.w3c.dom.Document;

/** Pages that {@code jccl report} makes of train, fit-demo and probe. */
@Timeout(value = 300, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainingPagesTest {
    private static final String SMALL =
            " --layers 2 --hidden 16 --heads 2 --context 16 --batch 8 --steps 4";

    @TempDir private Path folder;

    private static void run(String line, Object... more) {
        List<Object> words = new ArrayList<>(List.of((Object[]) line.split(" ", -1)));
        words.addAll(List.of(more));
        ReportCommandTest.Outcome o = jccl(words.toArray());
        assertEquals(0, o.status(), o::toString);
    }

    private static JsonNode json(Path file) throws IOException {
        return new ObjectMapper().readTree(file.toFile());
    }

    private Document report(Path... files) throws Exception {
        Path html = folder.resolve("report.html");
        List<Object> words = new ArrayList<>(List.of("report", "--html", html));
        words.addAll(List.of(files));
        ReportCommandTest.Outcome o = jccl(words.toArray());
        assertEquals(0, o.status(), o::toString);
        assertTrue(o.out().contains("# Results") || o.out().contains("GB/s"), o.out());
        return page(html);
    }

    @Test
    void singleTrainingsShareOneChart() throws Exception {
        Path a = folder.resolve("a.json");
        Path b = folder.resolve("b.json");
        run("train" + SMALL, "-J", a);
        run("train --lr 0.01" + SMALL, "-J", b);
        Document d = report(a, b);
        assertEquals(1, elements(d, "rect", "plot").size());
        assertEquals(2, elements(d, "polyline", "line").size());
        assertEquals(2 * 4, elements(d, "circle", "").size());
        assertTrue(texts(d, "text", "entry-name").containsAll(List.of("a, single", "b, single")));
        assertEquals(2, elements(d, "rect", "bar").size());
        double loss = json(b).at("/jccl_train/runs/0/losses/3").asDouble();
        String tip = "b, single, step 4: " + String.format(Locale.ROOT, "%.6g", loss);
        assertTrue(texts(d, "circle", "").contains(tip), tip);
    }

    @Tag("exhaustive")
    @Test
    void comparisonsHaveOneSmallChartForEachSet() throws Exception {
        Path a = folder.resolve("a.json");
        Path own = folder.resolve("own.html");
        run("train" + SMALL, "--compare", "dp=2;tp=2", "-J", a, "--html", own);
        List<String> sections =
                List.of("Loss by step", "Difference from the single-rank run", "Speed");
        for (Document d : List.of(page(own), report(a))) {
            assertEquals(sections, texts(d, "h2", ""));
            assertEquals(3 + 2, elements(d, "rect", "plot").size());
            assertEquals(3 + 2, elements(d, "polyline", "line").size());
            assertEquals(2, elements(d, "g", "faint").size(), "the single rank's, in grey");
        }
        // Another run's losses, further off than allowed.
        ObjectNode wrong = json(a).deepCopy();
        ((ObjectNode) wrong.at("/jccl_train/runs/1")).put("largest_difference", 0.5);
        Path b = Files.writeString(folder.resolve("b.json"), wrong.toString());
        Document d = report(a, b);
        assertEquals(3 + 2, elements(d, "rect", "plot").size());
        assertEquals(2 * (3 + 2), elements(d, "polyline", "line").size());
        assertEquals(
                List.of(
                        "b, dp=2: the losses differ from the single-rank run's by up to 0.5, more"
                                + " than the tolerance 0.001"),
                texts(d, "p", "warning"));
    }

    @Test
    void experts() throws Exception {
        Path a = folder.resolve("a.json");
        run("train --experts 4 --router top2" + SMALL, "-J", a);
        Document d = report(a);
        assertTrue(texts(d, "h2", "").contains("Load of the experts"));
        // The curve of the loss, and a line of four experts for each of two blocks.
        assertEquals(1 + 2, elements(d, "polyline", "line").size());
        assertEquals(4 + 2 * 4, elements(d, "circle", "").size());
        double share = json(a).at("/jccl_train/runs/0/expert_loads/1/shares/2").asDouble();
        String tip = String.format(Locale.ROOT, "block 1, expert 2: %.3g times the mean", share);
        assertTrue(texts(d, "circle", "").stream().anyMatch(t -> t.endsWith(tip)), tip);
    }

    @Tag("exhaustive")
    @Test
    void fitsAreLaidOverEachOther() throws Exception {
        Path a = folder.resolve("a.json");
        run("fit-demo --quick --max-blocks 2 --only plain,all", "-J", a);
        Path b = Files.copy(a, folder.resolve("b.json"));
        Document d = report(a, b);
        assertEquals(2 * 2, elements(d, "rect", "bar").size());
        assertEquals(2, elements(d, "rect", "plot").size());
        int runs = 0;
        for (JsonNode set : json(a).at("/jccl_fit_demo/sets")) {
            runs += set.get("runs").size();
        }
        assertTrue(runs >= 2, "only " + runs);
        assertEquals(2 * runs, elements(d, "circle", "").size());
        assertTrue(texts(d, "td", "").contains("b, all techniques"), texts(d, "td", "")::toString);
    }

    @Tag("exhaustive")
    @Test
    void probesShareTheirCharts() throws Exception {
        Path a = folder.resolve("a.json");
        Path own = folder.resolve("own.html");
        run("probe --only elementwise --max-bytes 64K --time-budget 1", "-J", a, "--html", own);
        int points = 0;
        for (JsonNode e : json(a).get("elementwise")) {
            points += e.get("gigabytes_per_second").isNumber() ? 1 : 0;
        }
        assertTrue(points >= 2, "only " + points);
        points += json(a).at("/roofline/points").size();
        assertEquals(points, elements(page(own), "circle", "").size());
        // As an earlier version wrote it: its command and machine are in fields of the probe.
        ObjectNode unsigned = json(a).deepCopy();
        unsigned.remove("run");
        Path b = Files.writeString(folder.resolve("b.json"), unsigned.toString());
        Document d = report(a, b);
        assertEquals(2 * points, elements(d, "circle", "").size());
        assertTrue(texts(d, "text", "entry-name").contains("b, add"));
        String command = "jccl probe --only elementwise --max-bytes 64K --time-budget 1 -J ";
        List<String> commands =
                texts(d, "td", "").stream().filter(t -> t.startsWith(command)).toList();
        assertEquals(2, commands.size(), commands::toString);
    }
}

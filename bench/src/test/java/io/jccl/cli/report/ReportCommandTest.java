package io.jccl.cli.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.report.Axis;
import io.jccl.cli.Main;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringReader;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;

@Timeout(value = 300, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ReportCommandTest {
    private static final Path TOPO = Path.of("../docs/examples/dgx-1.txt");

    /** Where the runs are that all tests read. */
    @TempDir private static Path runs;

    @TempDir private Path folder;

    record Outcome(int status, String out, String err) {}

    static Outcome jccl(Object... words) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        String[] args = java.util.Arrays.stream(words).map(Object::toString).toArray(String[]::new);
        int status = Main.execute(args, new PrintWriter(out), new PrintWriter(err));
        return new Outcome(status, out.toString(), err.toString());
    }

    private static void run(String line) {
        Outcome o = jccl((Object[]) line.split(" ", -1));
        assertEquals(0, o.status, o::toString);
    }

    @BeforeAll
    static void measure() {
        String sizes = " -b 8 -e 2K -f 4 -g 2 -n 2 -w 0";
        run(
                "all_reduce"
                        + sizes
                        + " -I -J "
                        + runs.resolve("a.json")
                        + " --html "
                        + runs.resolve("a.html"));
        run("all_reduce" + sizes + " --algo ring -J " + runs.resolve("b.json"));
        run("broadcast" + sizes + " -d all -J " + runs.resolve("types.json"));
        run("topo --file " + TOPO + " --size 1K,1M,1G --json=" + runs.resolve("topo.json"));
    }

    private static JsonNode json(String name) throws IOException {
        return new ObjectMapper().readTree(runs.resolve(name).toFile());
    }

    static Document page(Path file) throws Exception {
        String html = Files.readString(file);
        return DocumentBuilderFactory.newDefaultInstance()
                .newDocumentBuilder()
                .parse(new InputSource(new StringReader(html.substring(html.indexOf("<html")))));
    }

    static List<Element> elements(Document d, String tag, String style) {
        List<Element> found = new ArrayList<>();
        NodeList all = d.getElementsByTagName(tag);
        for (int i = 0; i < all.getLength(); i++) {
            Element e = (Element) all.item(i);
            if (style.isEmpty() || List.of(e.getAttribute("class").split(" ")).contains(style)) {
                found.add(e);
            }
        }
        return found;
    }

    static List<String> texts(Document d, String tag, String style) {
        return elements(d, tag, style).stream().map(Element::getTextContent).toList();
    }

    /** Titles of points, as text. */
    static List<String> tips(Document d) {
        return elements(d, "circle", "").stream().map(Element::getTextContent).toList();
    }

    @Test
    void aMeasuringCommandWritesItsPage() throws Exception {
        Document d = page(runs.resolve("a.html"));
        JsonNode results = json("a.json").get("results");
        assertEquals(5, results.size());
        // Out of place and in place, in both charts.
        assertEquals(4, elements(d, "polyline", "line").size());
        assertEquals(4, elements(d, "polygon", "band").size());
        List<String> tips = tips(d);
        assertEquals(4 * 5, tips.size());
        for (JsonNode r : results) {
            for (String way : List.of("out_of_place", "in_place")) {
                JsonNode side = r.get(way);
                double time = side.path("median").asDouble(side.get("time").asDouble());
                String start =
                        way.replace('_', ' ')
                                + ", "
                                + Axis.bytes(r.get("size").asDouble())
                                + ": "
                                + Axis.number(time)
                                + " us";
                assertEquals(
                        2, tips.stream().filter(t -> t.startsWith(start)).count(), start + tips);
            }
        }
        List<String> facts = texts(d, "dd", "");
        assertTrue(facts.getFirst().startsWith("jccl all_reduce -b 8 -e 2K"), facts::toString);
        assertTrue(facts.get(1).contains(" processors"), facts::toString);
        assertTrue(facts.get(2).contains("Java " + Runtime.version()), facts::toString);
        assertEquals(5, elements(d, "tr", "").size() - 1);
    }

    @Test
    void runsAreLaidOverEachOther() throws Exception {
        Path html = folder.resolve("r.html");
        Outcome o =
                jccl(
                        "report",
                        runs.resolve("a.json"),
                        runs.resolve("b.json"),
                        runs.resolve("topo.json"),
                        "--html",
                        html);
        assertEquals(0, o.status, o::toString);
        assertTrue(o.out.contains("# Time and bus bandwidth by size"), o.out);
        assertTrue(o.out.lines().anyMatch(l -> l.startsWith("  512 B ")), o.out);
        Document d = page(html);
        assertEquals(2 * 5, elements(d, "polyline", "line").size());
        assertEquals(2 * (4 * 5 + 3), tips(d).size());
        List<String> legend = texts(d, "text", "entry-name");
        for (String name :
                List.of(
                        "a, out of place",
                        "a, in place",
                        "b, out of place",
                        "b, in place",
                        "topo, all_reduce, predicted")) {
            assertEquals(2, legend.stream().filter(name::equals).count(), name + " in " + legend);
        }
        double bound = json("topo.json").at("/plan/boundGBps").asDouble();
        assertTrue(
                legend.contains("topo, ceiling of the links, " + Axis.number(bound) + " GB/s"),
                legend::toString);
        // Runs differ in colour, ways in their dashes.
        assertEquals(
                4,
                elements(d, "g", "dashed").stream()
                        .filter(g -> g.getAttribute("class").startsWith("curve"))
                        .count());
        assertEquals(
                2,
                elements(d, "g", "dotted").stream()
                        .filter(g -> g.getAttribute("class").startsWith("curve"))
                        .count());
        List<String> rows = texts(d, "td", "");
        assertTrue(rows.contains("b") && rows.contains("jccl topo"), rows::toString);
    }

    @Test
    void manyCurvesAreSpreadOverCharts() throws Exception {
        Path html = folder.resolve("t.html");
        Outcome o = jccl("report", runs.resolve("types.json"), "--html", html);
        assertEquals(0, o.status, o::toString);
        Document d = page(html);
        List<String> titles = texts(d, "h2", "");
        assertEquals(
                List.of("Bus bandwidth and time (1 of 2)", "Bus bandwidth and time (2 of 2)"),
                titles);
        for (Element svg : elements(d, "svg", "chart")) {
            NodeList groups = svg.getElementsByTagName("g");
            long colours = 0;
            for (int i = 0; i < groups.getLength(); i++) {
                String style = ((Element) groups.item(i)).getAttribute("class");
                colours += style.matches("curve .* solid") ? 1 : 0;
            }
            assertTrue(colours <= 8, colours + " colours");
        }
        assertTrue(texts(d, "text", "entry-name").contains("bfloat16, in place"));
    }

    /** As nccl-tests' -N writes it: each size several times. */
    @Test
    void cyclesAreMergedAndQuartilesAreBands() throws Exception {
        ObjectNode a = (ObjectNode) json("a.json");
        a.put("warning", "load 9 of 2");
        for (JsonNode r : a.get("results").deepCopy()) {
            ObjectNode side = (ObjectNode) r.get("out_of_place");
            side.put("median", 123.0).put("q1", 100.0).put("q3", 150.0);
            ((com.fasterxml.jackson.databind.node.ArrayNode) a.get("results")).add(r).add(r);
        }
        Path file = folder.resolve("cycles.json");
        Files.writeString(file, a.toString());
        Path html = folder.resolve("c.html");
        Outcome o = jccl("report", file, "--html", html);
        assertEquals(0, o.status, o::toString);
        assertTrue(o.out.contains("# WARNING: load 9 of 2"), o.out);
        Document d = page(html);
        assertEquals(List.of("load 9 of 2"), texts(d, "p", "warning"));
        assertEquals(4 * 5, tips(d).size());
        long merged = tips(d).stream().filter(t -> t.contains(": 123 us (")).count();
        assertTrue(merged > 0, tips(d)::toString);
    }

    @Tag("exhaustive")
    @Test
    void otherCommandsHaveBars() throws Exception {
        Path bandwidth = folder.resolve("bw.json");
        Path matmul = folder.resolve("mm.json");
        Path offload = folder.resolve("off.json");
        run("bandwidth --device host -b 64K -i 1 -n 1 -J " + bandwidth);
        run("matmul -n 64 -J " + matmul);
        run(
                "offload --layers 2 --layer-bytes 64K --samples 2 -J "
                        + offload
                        + " --html "
                        + folder.resolve("off.html"));
        Document d = page(folder.resolve("off.html"));
        assertEquals(5 + 2, elements(d, "rect", "bar").size());
        assertEquals(1, elements(d, "path", "whisker").size());
        Path html = folder.resolve("r.html");
        Outcome o = jccl("report", bandwidth, matmul, offload, matmul, "--html", html);
        assertEquals(0, o.status, o::toString);
        d = page(html);
        long cases =
                java.util.stream.StreamSupport.stream(
                                new ObjectMapper()
                                        .readTree(bandwidth.toFile())
                                        .at("/jccl_bandwidth/testcases")
                                        .spliterator(),
                                false)
                        .filter(c -> c.has("average"))
                        .count();
        assertTrue(cases > 4, "only " + cases);
        assertEquals(cases + 7 + 2 * 8, elements(d, "rect", "bar").size());
        assertEquals(
                List.of(
                        "Copies between memories",
                        "Copies hidden behind work",
                        "Product of matrices"),
                texts(d, "h2", ""));
    }

    /** As bench/peers/run writes them; null where a peer lacks the operation. */
    @Test
    void peersHaveAChartForEachOperation() throws Exception {
        StringBuilder results = new StringBuilder();
        for (String op : List.of("all_reduce", "gather")) {
            for (int size = 8; size <= 8192; size *= 32) {
                String gloo = op.equals("gather") ? "null" : Integer.toString(size + 9);
                results.append(results.isEmpty() ? "" : ",")
                        .append(
                                "{'operation': '%s', 'ranks': 2, 'bytes': %d, 'micros': "
                                        .formatted(op, size))
                        .append("{'JCCL threads': 0.5, 'Open MPI': 1.5, 'Gloo': " + gloo + "}}");
            }
        }
        String document =
                "{'machine': 'CPU', 'cores': 2, 'load_after': 7.5, 'versions': ['a', 'b'],"
                        + " 'rounds': 3, 'results': ["
                        + results
                        + "]}";
        Path file = Files.writeString(folder.resolve("p.json"), document.replace('\'', '"'));
        Path html = folder.resolve("p.html");
        Outcome o = jccl("report", file, "--html", html);
        assertEquals(0, o.status, o::toString);
        assertTrue(o.out.contains("# WARNING: the load average was 7.5"), o.out);
        Document d = page(html);
        assertEquals(
                List.of("all_reduce, 2 ranks", "gather, 2 ranks"), texts(d, "text", "heading"));
        assertEquals(3 + 2, elements(d, "polyline", "line").size());
        assertEquals(3 * 3 + 2 * 3, tips(d).size());
        assertTrue(tips(d).contains("Gloo, 256 B: 265 us"), tips(d)::toString);
    }

    @Test
    void aBarrierHasNoSizes() throws Exception {
        Path html = folder.resolve("b.html");
        run("barrier -g 2 -n 2 -w 0 --html " + html);
        Document d = page(html);
        assertEquals(0, elements(d, "polyline", "").size());
        assertEquals(1, elements(d, "rect", "bar").size());
    }

    @Test
    void wrongResultsAreNamedFirst() throws Exception {
        ObjectNode a = (ObjectNode) json("a.json");
        ((ObjectNode) a.get("out_of_bounds")).put("count", 3);
        Path file = Files.writeString(folder.resolve("wrong.json"), a.toString());
        Outcome o = jccl("report", file, runs.resolve("b.json"));
        assertTrue(o.out.contains("# WARNING: wrong: 3 checks found wrong values"), o.out);
    }

    @Test
    void namesOfFilesAreText() throws Exception {
        Path file = folder.resolve("<img src=x onerror=alert(1)>&\u001b[2J.json");
        Files.copy(runs.resolve("a.json"), file);
        Path html = folder.resolve("r.html");
        Outcome o = jccl("report", file, runs.resolve("b.json"), "--html", html);
        assertEquals(0, o.status, o::toString);
        assertFalse(o.out.contains("\u001b"), "a terminal would obey");
        Document d = page(html);
        assertEquals(0, elements(d, "img", "").size());
        assertTrue(
                texts(d, "td", "").contains("<img src=x onerror=alert(1)>&\ufffd[2J"),
                texts(d, "td", "")::toString);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '`',
            value = {
                "none.json | | is not there; give files that -J/--json of",
                ". | | is a folder; give files that",
                "a | | is empty; give files",
                "a | {\"config\": {\"collective\": \"all_reduce\"}, | ends in the middle, in line"
                        + " 1: it is truncated; copy it completely, or measure again",
                "a | size,time | is not JSON: ",
                "a | {} trailing | is not JSON: ",
                "a | {\"jcclFlight\": 1} | is JSON of something else; give files",
                "a | [1, 2] | is JSON of something else",
                "a | {\"config\":{\"collective\":\"x\"},\"results\":[]} | \"results\" is empty, so the run ended before its first size",
                "a | {\"config\":{\"collective\":\"x\"},\"results\":[{\"size\":\"8\"}]} | \"size\" is \"8\", expected a number",
                "a | {\"config\":{\"collective\":\"x\"},\"results\":[{\"size\":8,\"out_of_place\":{}}]} | \"time\" is missing, expected a number",
                "a | {\"jccl_offload\":{}} | \"copy_only_ms\" is missing, expected a number",
                "a | {\"host_engine\":{}} | is of jccl doctor, which has no charts; give files",
                "a | {\"micro_batch\":1,\"sources\":{}} | is of jccl plan, which has no charts",
                "a | {\"communicators\":[]} | is of jccl flight, whose page jccl flight --html makes",
                "a | {\"jccl_train\":{\"runs\":[]}} | \"runs\" is empty",
                "a | {\"jccl_train\":{\"runs\":[{\"losses\":[1,\"x\"]}]}} | \"losses\" has \"x\", expected numbers",
                "a | {\"jccl_fit_demo\":{\"sets\":[{}]}} | \"largest_parameters\" is missing, expected a number",
                "a | {\"roofline\":{},\"matmul\":[],\"schema\":2} | \"schema\" is 2, expected 1",
                "a | {\"roofline\":{},\"matmul\":[{}],\"schema\":1,\"warnings\":[]} | \"outcome\" of an entry of matmul is missing",
                "a | {\"gigaflops\":1,\"plan\":{}} | \"computeShare\" is missing, expected a number",
            })
    void badFilesEndInOneLine(String name, String content, String message) throws IOException {
        Path file = folder.resolve(name);
        if (name.equals("a")) {
            Files.writeString(file, content == null ? "" : content);
        }
        Outcome o = jccl("report", runs.resolve("a.json"), file, "--html", folder.resolve("x"));
        assertEquals(2, o.status, o::toString);
        assertEquals(1, o.err.lines().count(), o::toString);
        assertTrue(o.err.contains("'" + file + "' "), o::toString);
        assertTrue(o.err.contains(message), o::toString);
        assertEquals("", o.out);
        assertFalse(Files.exists(folder.resolve("x")), "a page was written");
    }

    @Tag("exhaustive")
    @Test
    void everyCutOfAFileIsNoticed() throws IOException {
        String whole = Files.readString(runs.resolve("b.json")).strip();
        Path file = folder.resolve("cut.json");
        for (int length = 1; length < whole.length(); length += 37) {
            String part = whole.substring(0, length);
            Files.writeString(file, part);
            Outcome o = jccl("report", file);
            assertEquals(2, o.status, length + ": " + o);
            // Half of true, false, null or of a number may be something that JSON does not have.
            boolean half = part.matches("(?s).*[:\\[,]\\s*([tfn][a-z]*|[-0-9.]+[-.E])");
            String expected = half ? "'" + file + "' " : "it is truncated";
            assertTrue(o.err.contains(expected), part + o);
        }
    }

    @Test
    void thePageIsNotWrittenOverARun() throws IOException {
        Path file = Files.copy(runs.resolve("a.json"), folder.resolve("a.json"));
        Outcome o = jccl("report", file, "--html", file);
        assertEquals(2, o.status, o::toString);
        assertTrue(o.err.contains("is also a file to read; give another to write"), o.err);
        o = jccl("report", file, "--html", folder.resolve("./a.json"));
        assertEquals(2, o.status, o::toString);
        assertEquals(json("a.json"), new ObjectMapper().readTree(file.toFile()));
        for (String command :
                List.of(
                        "report " + file,
                        "all_reduce -b 8 -e 8",
                        "bandwidth",
                        "offload",
                        "matmul")) {
            List<Object> words = new ArrayList<>(List.of((Object[]) command.split(" ", -1)));
            words.addAll(List.of("--html", folder.resolve("none/x.html")));
            o = jccl(words.toArray());
            assertEquals(2, o.status, o::toString);
            assertTrue(o.err.contains("--html '") && o.err.contains("does not exist"), o::toString);
        }
    }

    /** In a browser: scripts run without an error, values show where the mouse is, names hide. */
    @Test
    void thePageWorksInABrowser() throws Exception {
        Path html = folder.resolve("r.html");
        Outcome o = jccl("report", runs.resolve("a.json"), runs.resolve("b.json"), "--html", html);
        assertEquals(0, o.status, o::toString);
        String probe =
                """
                <script>
                const chart = document.querySelector("svg.chart");
                const dot = chart.querySelector("circle").getBoundingClientRect();
                chart.dispatchEvent(new PointerEvent("pointermove",
                  { clientX: dot.x + dot.width / 2, clientY: dot.y + dot.height / 2, bubbles: true }));
                document.body.dataset.tip = tip.textContent;
                document.body.dataset.shown = getComputedStyle(tip).display;
                chart.querySelector(".key").dispatchEvent(new MouseEvent("click", { bubbles: true }));
                document.body.dataset.off = chart.querySelectorAll(".curve.off").length;
                document.body.dataset.wide = document.documentElement.scrollWidth - window.innerWidth;
                </script></body>\
                """;
        Files.writeString(html, Files.readString(html).replace("</body>", probe));
        String dom = Browser.open(html, folder);
        int points = page(html).getElementsByTagName("circle").getLength();
        assertEquals(points, dom.split("<circle [^>]*data-tip=", -1).length - 1);
        assertTrue(dom.contains("data-shown=\"block\""), dom);
        assertTrue(dom.contains("data-off=\"1\""), dom);
        for (String curve :
                List.of("a, out of place", "a, in place", "b, out of place", "b, in place")) {
            assertTrue(
                    dom.matches("(?s).*<body [^>]*data-tip=\"[^\"]*" + curve + ", 8 B: .*"),
                    curve
                            + " in "
                            + dom.substring(dom.indexOf("<body"), dom.indexOf("<body") + 400));
        }
        String wide = dom.replaceFirst("(?s).*data-wide=\"(-?\\d+)\".*", "$1");
        assertTrue(Integer.parseInt(wide) <= 0, "the page is wider than the window by " + wide);
    }
}

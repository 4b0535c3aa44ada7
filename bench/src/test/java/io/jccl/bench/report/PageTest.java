package io.jccl.bench.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.report.Axis.Scale;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Mark;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;

class PageTest {
    private static final Axis SIZE = new Axis("size", Scale.BYTES);
    private static final Axis TIME = new Axis("time, us", Scale.DECADES);

    /** What a file's name or a command line may hold. */
    private static final String HOSTILE =
            "</script></svg><script>alert(1)</script>'\"&amp;\u0000\u202e\ud800 %s %n <!--";

    private static Document parse(String text) throws Exception {
        return DocumentBuilderFactory.newDefaultInstance()
                .newDocumentBuilder()
                .parse(new InputSource(new StringReader(text)));
    }

    private static Document page(Page page) throws Exception {
        String html = page.html();
        assertTrue(html.startsWith("<!DOCTYPE html>\n"), html);
        return parse(html.substring(html.indexOf("<html")));
    }

    private static List<Element> elements(Document d, String tag, String style) {
        List<Element> found = new ArrayList<>();
        NodeList all = d.getElementsByTagName(tag);
        for (int i = 0; i < all.getLength(); i++) {
            Element e = (Element) all.item(i);
            if (List.of(e.getAttribute("class").split(" ")).contains(style) || style.isEmpty()) {
                found.add(e);
            }
        }
        return found;
    }

    private static Series series(String name, int colour, int points) {
        List<Point> all = new ArrayList<>();
        for (int i = 0; i < points; i++) {
            double y = 10 + i * (colour + 1);
            all.add(new Point(8 << i, y, y * 0.9, y * 1.2, name + " " + i));
        }
        return new Series(name, colour, Line.SOLID, all);
    }

    private static double number(Element e, String attribute) {
        return Double.parseDouble(e.getAttribute(attribute));
    }

    @Test
    void everySeriesAndPointIsDrawnWithinThePlot() throws Exception {
        LineChart chart =
                LineChart.of(
                        "t",
                        SIZE,
                        TIME,
                        List.of(series("a", 0, 12), series("b", 1, 9)),
                        List.of(new Mark("limit", 4000)));
        Document d = page(new Page("p").add(new Figure("f", "", List.of(chart))));
        assertEquals(2, elements(d, "polyline", "line").size());
        assertEquals(2, elements(d, "polygon", "band").size());
        assertEquals(21, elements(d, "circle", "").size());
        Element plot = elements(d, "rect", "plot").getFirst();
        for (Element c : elements(d, "circle", "")) {
            double x = number(c, "cx") - number(plot, "x");
            double y = number(c, "cy") - number(plot, "y");
            assertTrue(x >= 0 && x <= number(plot, "width"), x + " of " + plot);
            assertTrue(y >= 0 && y <= number(plot, "height"), y + " of " + plot);
        }
        List<String> tips = elements(d, "title", "").stream().map(Element::getTextContent).toList();
        assertTrue(tips.containsAll(List.of("a 0", "a 11", "b 0", "b 8", "limit")), tips::toString);
        // The mark lies above all points.
        Element mark =
                elements(d, "line", "mark").stream()
                        .filter(m -> m.getElementsByTagName("title").getLength() == 1)
                        .findFirst()
                        .orElseThrow();
        elements(d, "circle", "")
                .forEach(c -> assertTrue(number(c, "cy") > number(mark, "y1"), c::toString));
        List<String> legend =
                elements(d, "text", "entry-name").stream().map(Element::getTextContent).toList();
        assertEquals(List.of("a", "b", "limit"), legend);
    }

    @Test
    void largerValuesAreFartherUpAndRight() throws Exception {
        LineChart chart = LineChart.of("t", SIZE, TIME, List.of(series("a", 3, 10)), List.of());
        Document d = page(new Page("p").add(new Figure("f", "", List.of(chart))));
        List<Element> dots = elements(d, "circle", "");
        double step = number(dots.get(1), "cx") - number(dots.get(0), "cx");
        for (int i = 1; i < dots.size(); i++) {
            assertTrue(number(dots.get(i), "cy") < number(dots.get(i - 1), "cy"));
            // Equal factors are equally long.
            assertEquals(step, number(dots.get(i), "cx") - number(dots.get(i - 1), "cx"), 0.11);
        }
    }

    @Test
    void whatHasNoLogarithmIsLeftOut() throws Exception {
        Series s =
                new Series(
                        "a",
                        0,
                        Line.SOLID,
                        List.of(
                                new Point(0, 5, "zero size"),
                                new Point(8, 0, "zero time"),
                                new Point(16, Double.NaN, "none"),
                                new Point(32, 7, "drawn")));
        LineChart chart = LineChart.of("t", SIZE, TIME, List.of(s), List.of());
        assertTrue(chart.hasPoints());
        String html = new Page("p").add(new Figure("f", "", List.of(chart))).html();
        assertTrue(html.contains("drawn") && !html.contains("zero") && !html.contains("NaN"), html);
        Series none = new Series("a", 0, Line.SOLID, List.of(new Point(0, 0, "")));
        assertFalse(LineChart.of("t", SIZE, TIME, List.of(none), List.of()).hasPoints());
    }

    @Test
    void barsBeginAtZero() throws Exception {
        BarChart chart =
                new BarChart(
                        "t",
                        List.of("first", "second"),
                        List.of(
                                new BarChart.Group(
                                        "a",
                                        List.of(
                                                new BarChart.Bar(0, 10, "10 us", "tip 10"),
                                                new BarChart.Bar(1, 40, 30, 60, "40 us", "tip"))),
                                new BarChart.Group(
                                        "b", List.of(new BarChart.Bar(0, -1, "no", "no")))));
        Document d = page(new Page("p").add(new Figure("f", "", List.of(chart))));
        List<Element> bars = elements(d, "rect", "bar");
        assertEquals(2, bars.size());
        assertEquals(4, number(bars.get(1), "width") / number(bars.get(0), "width"), 0.01);
        assertEquals(1, elements(d, "path", "whisker").size());
        List<String> names =
                elements(d, "text", "entry-name").stream().map(Element::getTextContent).toList();
        assertEquals(List.of("first", "second"), names);
    }

    @Test
    void hostileNamesAreText() throws Exception {
        LineChart line =
                LineChart.of(
                        HOSTILE,
                        new Axis(HOSTILE, Scale.LINEAR),
                        new Axis(HOSTILE, Scale.LINEAR),
                        List.of(
                                new Series(
                                        HOSTILE,
                                        0,
                                        Line.DASHED,
                                        List.of(new Point(1, 1, HOSTILE)))),
                        List.of(new Mark(HOSTILE, 2)));
        BarChart bar =
                new BarChart(
                        HOSTILE,
                        List.of(HOSTILE),
                        List.of(
                                new BarChart.Group(
                                        HOSTILE,
                                        List.of(new BarChart.Bar(0, 1, HOSTILE, HOSTILE)))));
        Page page =
                new Page(HOSTILE)
                        .fact(HOSTILE, HOSTILE)
                        .warning(HOSTILE)
                        .add(HOSTILE)
                        .add(new Table(HOSTILE, List.of(HOSTILE), List.of(List.of(HOSTILE))))
                        .add(new Figure(HOSTILE, HOSTILE, List.of(line, bar)));
        Document d = page(page);
        assertEquals(1, elements(d, "script", "").size(), "a name became a script");
        String h1 = elements(d, "h1", "").getFirst().getTextContent();
        assertEquals(
                HOSTILE.replaceAll("[\u0000\u202e]", "\ufffd").replace('\ud800', '\ufffd'), h1);
        Document svg = parse(page.svg());
        assertEquals(0, elements(svg, "script", "").size());
        assertEquals(3, elements(svg, "svg", "").size());
    }

    @Test
    void nothingIsLoadedFromElsewhere() {
        LineChart line = LineChart.of("t", SIZE, TIME, List.of(series("a", 0, 3)), List.of());
        String html = new Page("p").add(new Figure("f", "", List.of(line))).html();
        // The one address names a language to the script; a browser does not open it.
        String rest = html.replace("\"http://www.w3.org/2000/svg\"", "");
        for (String bad : List.of("http:", "https:", "//cdn", "src=", "<link", "@import", "url(")) {
            assertFalse(rest.contains(bad), bad);
        }
        assertTrue(html.contains("default-src 'none'"), "the browser is not told to load nothing");
    }

    /** Legends must not overlap: rows in order, entries of a row one after the other. */
    @Test
    void legendEntriesDoNotOverlap() throws Exception {
        List<Series> all = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            all.add(series("a name of some length ".repeat(i + 1).strip() + i, i, 2));
        }
        LineChart chart = LineChart.of("t", SIZE, TIME, all, List.of());
        Document d = page(new Page("p").add(new Figure("f", "", List.of(chart))));
        List<Element> lines = elements(d, "text", "entry-name");
        assertTrue(lines.size() > 8, "long names are not broken into lines");
        for (int i = 1; i < lines.size(); i++) {
            Element before = lines.get(i - 1);
            Element e = lines.get(i);
            double end = number(before, "x") + Markup.width(before.getTextContent(), 12);
            assertTrue(
                    number(e, "y") > number(before, "y") || number(e, "x") > end,
                    before.getTextContent() + " overlaps " + e.getTextContent());
        }
        for (Element e : lines) {
            double end = number(e, "x") + Markup.width(e.getTextContent(), 12);
            assertTrue(end <= chart.width(), e.getTextContent() + " is cut off at " + end);
            assertTrue(number(e, "y") < chart.height(), e.getTextContent() + " is below");
        }
        String names =
                lines.stream().map(Element::getTextContent).reduce("", (a, b) -> a + " " + b);
        all.forEach(s -> assertTrue(names.contains(s.name()), s.name() + " in " + names));
    }

    @Test
    void smallChartsHaveTheSameAxes() throws Exception {
        LineChart one = LineChart.small("a", SIZE, TIME, List.of(series("a", 0, 3)), List.of());
        LineChart two =
                LineChart.small(
                        "a longer name that takes two lines of the title",
                        SIZE,
                        TIME,
                        List.of(series("b", 1, 12)),
                        List.of());
        LineChart none = LineChart.small("c", SIZE, TIME, List.of(), List.of());
        List<Chart> charts = LineChart.alike(List.of(one, two, none));
        assertEquals(List.of(one, two), charts);
        assertEquals(one.height(), two.height());
        Document d = page(new Page("p").add(new Figure("f", "", charts)));
        List<Element> dots = elements(d, "circle", "");
        // The first size is at the same place in both.
        assertEquals(number(dots.get(0), "cx"), number(dots.get(3), "cx"), 0.01);
    }

    /**
     * Any two colours differ to people who see all colours and to those who lack one kind of cones
     * (Machado, Oliveira, Fernandes 2009), and stand out from the page.
     */
    @Test
    void coloursAreToldApart() {
        String css = Markup.resource("chart.css");
        int dark = css.indexOf("@media");
        check(colours(css.substring(0, dark)), 0xffffff);
        check(colours(css.substring(dark)), 0x16181d);
        assertTrue(css.contains("#16181d"), "another background");
    }

    private static List<Integer> colours(String css) {
        List<Integer> found = new ArrayList<>();
        for (int i = 0; i < Chart.COLOURS; i++) {
            java.util.regex.Matcher m =
                    java.util.regex.Pattern.compile("\\.c" + i + " \\{ --c: #([0-9a-f]{6}) }")
                            .matcher(css);
            assertTrue(m.find(), "colour " + i);
            found.add(Integer.parseInt(m.group(1), 16));
        }
        return found;
    }

    private static final double[][][] EYES = {
        {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
        {
            {0.152286, 1.052583, -0.204868},
            {0.114503, 0.786281, 0.099216},
            {-0.003882, -0.048116, 1.051998}
        },
        {
            {0.367322, 0.860646, -0.227968},
            {0.280085, 0.672501, 0.047413},
            {-0.011820, 0.042940, 0.968881}
        },
        {
            {1.255528, -0.076749, -0.178779},
            {-0.078411, 0.930809, 0.147602},
            {0.004733, 0.691367, 0.303900}
        },
    };

    private static void check(List<Integer> colours, int background) {
        for (int a : colours) {
            double light = Math.max(luminance(a), luminance(background)) + 0.05;
            double ratio = light / (Math.min(luminance(a), luminance(background)) + 0.05);
            assertTrue(ratio >= 3, String.format(Locale.ROOT, "#%06x has %.2f", a, ratio));
            for (int b : colours) {
                for (double[][] eye : EYES) {
                    double far = distance(oklab(a, eye), oklab(b, eye));
                    assertTrue(
                            a == b || far > 0.08,
                            String.format(Locale.ROOT, "#%06x, #%06x: %.3f", a, b, far));
                }
            }
        }
    }

    private static double[] linear(int rgb) {
        double[] c = new double[3];
        for (int i = 0; i < 3; i++) {
            double v = (rgb >> (16 - 8 * i) & 255) / 255.0;
            c[i] = v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
        }
        return c;
    }

    private static double luminance(int rgb) {
        double[] c = linear(rgb);
        return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
    }

    private static double distance(double[] a, double[] b) {
        return Math.sqrt(
                Math.pow(a[0] - b[0], 2) + Math.pow(a[1] - b[1], 2) + Math.pow(a[2] - b[2], 2));
    }

    /** Björn Ottosson's perceptual space, of what an eye sees of a colour. */
    private static double[] oklab(int rgb, double[][] eye) {
        double[] c = linear(rgb);
        double[] v = new double[3];
        for (int i = 0; i < 3; i++) {
            double sum = eye[i][0] * c[0] + eye[i][1] * c[1] + eye[i][2] * c[2];
            v[i] = Math.clamp(sum, 0, 1);
        }
        double l = Math.cbrt(0.4122214708 * v[0] + 0.5363325363 * v[1] + 0.0514459929 * v[2]);
        double m = Math.cbrt(0.2119034982 * v[0] + 0.6806995451 * v[1] + 0.1073969566 * v[2]);
        double s = Math.cbrt(0.0883024619 * v[0] + 0.2817188376 * v[1] + 0.6299787005 * v[2]);
        return new double[] {
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s
        };
    }

    @Test
    void tablesForATerminalAreAligned() {
        Table t =
                new Table(
                        "times",
                        List.of("size", "us"),
                        List.of(List.of("8 B", "12.5"), List.of("64 KiB", "7")));
        assertEquals("# times\n# size      us\n  8 B     12.5\n  64 KiB     7\n", t.text());
        assertEquals(0, new Page("p").add(new Table("", List.of("a"), List.of())).text().length());
        assertEquals("# WARNING: x\n", Objects.requireNonNull(new Page("p").warning("x").text()));
    }
}

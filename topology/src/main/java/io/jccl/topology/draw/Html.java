package io.jccl.topology.draw;

import io.jccl.topology.Link;
import io.jccl.topology.Topology;
import io.jccl.topology.Warning;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Plan;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * A page about a machine and a plan: the picture of {@link Svg} with a check box for each channel,
 * tables of channels, of predictions and of links, and the warnings. The page is one self-contained
 * file and follows the browser's light or dark setting. Names are escaped.
 *
 * <p><b>Threads:</b> any.
 */
public final class Html {
    /** As that of the other reports (page.css of the command line, which a test compares). */
    private static final String STYLE =
            """
            :root { color-scheme: light dark }
            body { font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; margin: 24px auto; max-width: 1240px; padding: 0 16px;
                   color: #24292f; background: #ffffff }
            h1 { font-size: 22px; margin: 0 0 12px } h2 { font-size: 17px; margin: 28px 0 4px } p { margin: 4px 0 8px; max-width: 90ch }
            dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; margin: 0 0 12px }
            dt { color: #57606a } dd { margin: 0; overflow-wrap: anywhere }
            .warning { border-left: 4px solid #d55e00; padding: 4px 10px; background: #d55e0018 }
            table { border-collapse: collapse; margin: 20px 0 8px; font-variant-numeric: tabular-nums; font-size: 13px }
            th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #8c959f44; white-space: nowrap }
            th:first-child, td:first-child { text-align: left; padding-left: 0 }
            .words th, .words td { text-align: left; white-space: normal; vertical-align: top }
            .words .n { text-align: right }
            .picture, .scroll { overflow: auto } .scroll { max-height: 24rem }
            .picture svg { max-width: 100%; height: auto; min-width: min(100%, 900px) }
            .key { display: inline-block; width: 1.6rem; height: .3rem; border-radius: .2rem; vertical-align: middle }
            button { font: inherit; margin-right: .5rem }
            .channels g.off { display: none }
            .picture.wide { max-height: 85vh; border: 1px solid #8c959f44 } .picture.wide svg { max-width: none }
            .plot { max-width: 100%; height: auto }
            .words td.keep { white-space: nowrap }
            @media (prefers-color-scheme: dark) {
            body { color: #e6edf3; background: #16181d }
            dt { color: #9da7b3 }
            }
            """;

    /** A wider picture is shown in its own size, to be scrolled. */
    private static final double WIDE = 1800;

    private static final String SCRIPT =
            """
            const boxes = [...document.querySelectorAll('input[data-channel]')];
            const show = b => document.getElementById('channel' + b.dataset.channel)
              .classList.toggle('off', !b.checked);
            boxes.forEach(b => { b.addEventListener('change', () => show(b)); show(b); });
            const all = on => boxes.forEach(b => { b.checked = on; show(b); });
            document.getElementById('all')?.addEventListener('click', () => all(true));
            document.getElementById('none')?.addEventListener('click', () => all(false));
            const picture = document.querySelector('.picture svg');
            const width = picture.viewBox.baseVal.width;
            const size = w => { picture.style.minWidth = '0'; picture.style.maxWidth = 'none'; picture.style.width = w; };
            const scale = f => size(picture.getBoundingClientRect().width * f + 'px');
            document.getElementById('fit')?.addEventListener('click', () => size('100%'));
            document.getElementById('natural')?.addEventListener('click', () => size(width + 'px'));
            document.getElementById('in')?.addEventListener('click', () => scale(1.4));
            document.getElementById('out')?.addEventListener('click', () => scale(1 / 1.4));
            """;

    private final Topology topology;
    private final List<RenderedChannel> channels;
    private final StringBuilder out = new StringBuilder();

    private Html(Topology topology, List<RenderedChannel> channels) {
        this.topology = topology;
        this.channels = channels;
    }

    /**
     * Makes a page.
     *
     * @param topology the machine
     * @param plan a plan of this machine to draw over it; null for none
     * @return an HTML document
     */
    public static String of(Topology topology, @Nullable Plan plan) {
        return of(
                topology,
                plan,
                List.of(),
                "",
                topology.warnings().stream().map(Warning::toString).toList());
    }

    /**
     * Makes a page with predictions and warnings.
     *
     * @param topology the machine
     * @param plan a plan of this machine to draw over it; null for none
     * @param predictions a table whose first row has the headings; may be empty
     * @param plot an SVG document that shows them; may be empty
     * @param warnings what to warn of
     * @return an HTML document
     */
    public static String of(
            Topology topology,
            @Nullable Plan plan,
            List<List<String>> predictions,
            String plot,
            List<String> warnings) {
        Html page = new Html(topology, RenderedChannel.of(plan));
        page.head();
        if (plan != null) {
            page.summary(
                    plan.operation().command(),
                    plan.gpus().size(),
                    plan.bandwidthGBps(),
                    plan.boundGBps(),
                    plan.bound(),
                    plan.why());
        }
        return page.rest(predictions, plot, warnings);
    }

    /**
     * Makes a page about one machine of a cluster.
     *
     * @param plan the plan, of which the part of each rail inside a machine is drawn
     * @param predictions a table whose first row has the headings; may be empty
     * @param plot an SVG document that shows them; may be empty
     * @param warnings what to warn of
     * @return an HTML document
     */
    public static String of(
            ClusterPlan plan, List<List<String>> predictions, String plot, List<String> warnings) {
        Html page = new Html(plan.cluster().machine(), RenderedChannel.of(plan));
        page.head();
        page.summary(
                plan.operation().command() + " on " + plan.cluster().machines() + " machines",
                plan.gpus().size() * plan.cluster().machines(),
                plan.bandwidthGBps(),
                plan.boundGBps(),
                plan.bound(),
                plan.why());
        return page.rest(predictions, plot, warnings);
    }

    private void head() {
        out.append("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
        out.append("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
        out.append("<title>").append(Text.xml(topology.name())).append(" – topology</title>\n");
        out.append("<style>\n").append(STYLE).append("</style>\n</head>\n<body>\n<h1>");
        out.append(Text.xml(topology.name())).append("</h1>\n<p>");
        out.append(Svg.count(topology.gpus().size(), "GPU")).append(", ");
        out.append(Svg.count(topology.nics().size(), "NIC"));
        out.append(". Bandwidths are GB/s (10^9 bytes per second), of links per direction.");
        out.append(" Bandwidths and times are predictions, not measurements.</p>\n");
    }

    private void summary(
            String operation,
            int ranks,
            double bandwidth,
            double bound,
            String limit,
            List<String> why) {
        out.append("<dl>");
        term("operation", operation + ", " + Svg.count(ranks, "GPU"));
        term(
                "bus bandwidth",
                Text.gbps(bandwidth)
                        + " GB/s of at most "
                        + Text.gbps(bound)
                        + " ("
                        + Math.round(1000 * (bound == 0 ? 1 : bandwidth / bound)) / 10.0
                        + "%)");
        term("limited by", limit);
        out.append("</dl>\n");
        if (!why.isEmpty()) {
            out.append("<h2>Why</h2>\n<ul>\n");
            why.forEach(w -> out.append("<li>").append(Text.sentence(w)).append("</li>\n"));
            out.append("</ul>\n");
        }
    }

    private void term(String term, String value) {
        out.append("<dt>").append(term).append("</dt><dd>").append(Text.xml(value));
        out.append("</dd>");
    }

    private String rest(List<List<String>> predictions, String plot, List<String> warnings) {
        Svg picture = new Svg(topology, channels, false);
        out.append("<p><button type=\"button\" id=\"fit\">fit</button>");
        out.append("<button type=\"button\" id=\"natural\">1:1</button>");
        out.append("<button type=\"button\" id=\"in\">+</button>");
        out.append("<button type=\"button\" id=\"out\">–</button></p>\n<div class=\"picture");
        out.append(picture.width() > WIDE ? " wide\">\n" : "\">\n").append(picture.draw());
        out.append("</div>\n");
        channelTable();
        table("Predictions", predictions);
        if (!plot.isEmpty()) {
            // In a document of its own, so that its style does not mix with that of the page.
            out.append(
                    "<img class=\"plot\" alt=\"Predictions by size\" src=\"data:image/svg+xml;base64,");
            byte[] document = plot.getBytes(StandardCharsets.UTF_8);
            out.append(Base64.getEncoder().encodeToString(document)).append("\"/>\n");
        }
        if (!warnings.isEmpty()) {
            out.append("<h2>Warnings</h2>\n");
            warnings.forEach(w ->
                    out.append("<p class=\"warning\">").append(Text.sentence(w)).append("</p>\n"));
        }
        links();
        out.append("<script>\n").append(SCRIPT).append("</script>\n</body>\n</html>\n");
        return out.toString();
    }

    private void channelTable() {
        if (channels.isEmpty()) {
            return;
        }
        out.append("<h2>Channels</h2>\n<p><button type=\"button\" id=\"all\">all</button>");
        out.append("<button type=\"button\" id=\"none\">none</button></p>\n");
        out.append("<div class=\"scroll\"><table class=\"words\">\n");
        for (int i = 0; i < channels.size(); i++) {
            RenderedChannel c = channels.get(i);
            out.append(
                    "<tr><td class=\"keep\"><label><input type=\"checkbox\" checked=\"\" data-channel=\"");
            out.append(i).append("\"/> <span class=\"key\" style=\"background:");
            out.append(SvgStyle.COLOURS.get(i % SvgStyle.COLOURS.size())).append("\"></span> ");
            out.append(Text.xml(c.title())).append("</label></td><td>");
            out.append(Text.whole(c.path())).append("</td></tr>\n");
        }
        out.append("</table></div>\n");
    }

    private void table(String title, List<List<String>> rows) {
        if (rows.isEmpty()) {
            return;
        }
        out.append("<h2>").append(title).append("</h2>\n<table>\n");
        String cell = "th";
        for (List<String> row : rows) {
            out.append("<tr>");
            for (String value : row) {
                out.append('<').append(cell).append(" class=\"n\">").append(Text.xml(value));
                out.append("</").append(cell).append('>');
            }
            out.append("</tr>\n");
            cell = "td";
        }
        out.append("</table>\n");
    }

    private void links() {
        out.append("<h2>Links</h2>\n<div class=\"scroll\"><table class=\"words\">\n");
        out.append("<tr><th>from</th><th>to</th>");
        out.append(
                "<th>kind</th><th class=\"n\">links</th><th class=\"n\">GB/s per direction</th>");
        out.append("<th>figure from</th></tr>\n");
        for (Link link : topology.links()) {
            out.append("<tr><td>").append(name(link.a())).append("</td><td>");
            out.append(name(link.b())).append("</td><td>").append(Svg.name(link.kind()));
            out.append("</td><td class=\"n\">").append(link.count());
            out.append("</td><td class=\"n\">").append(Text.gbps(link.gbps())).append("</td><td>");
            out.append(link.source().name().toLowerCase(Locale.ROOT).replace('_', ' '));
            out.append("</td></tr>\n");
        }
        out.append("</table></div>\n");
    }

    private String name(int node) {
        return Text.xml(topology.nodes().get(node).name());
    }
}

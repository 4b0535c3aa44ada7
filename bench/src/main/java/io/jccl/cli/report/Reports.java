package io.jccl.cli.report;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import io.jccl.cli.shell.HtmlOption;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine;

/** Pages of runs: {@code --html} of a measuring command draws what its {@code --json} holds. */
public final class Reports {
    private Reports() {}

    /**
     * Records command, machine and versions in a document, under {@code run}.
     *
     * @param document the whole document
     * @param line the command's
     */
    public static void sign(ObjectNode document, CommandLine line) {
        sign(document, words(line));
    }

    /**
     * The command line as typed.
     *
     * @return its words, starting with jccl
     */
    private static List<String> words(CommandLine line) {
        List<String> words = new ArrayList<>(List.of(line.getCommandName().split(" ", -1)));
        words.addAll(line.getParseResult().originalArgs());
        return words;
    }

    /**
     * Records command, machine and versions in a document, under {@code run}.
     *
     * @param document the whole document
     * @param command the command's words, from jccl on
     */
    public static void sign(ObjectNode document, List<String> command) {
        Origin.put(document, command);
    }

    /**
     * Creates a page with command, machine, versions and time.
     *
     * @param document a signed document
     * @return the page, without figures
     */
    private static Page begin(String title, JsonNode document) {
        Page page = new Page(title);
        Origin.of(document).addTo(page);
        return page;
    }

    /**
     * Writes the page of one command, if requested.
     *
     * @param html the command's option
     * @param document what {@code --json} writes
     * @throws IOException if the file cannot be written
     */
    public static void write(HtmlOption html, JsonNode document) throws IOException {
        html.write(() -> page(document).html());
    }

    /**
     * The page of one command.
     *
     * @param document what {@code --json} writes
     * @return the page
     */
    public static Page page(JsonNode document) {
        return page(List.of(Run.here(document)));
    }

    /**
     * Losses alone, which are the same on every machine.
     *
     * @param document what {@code --json} of {@code train} writes
     * @return the page, without speeds
     */
    public static Page losses(JsonNode document) {
        Page page = begin("jccl train", document);
        Training.losses(page, List.of(Run.here(document)));
        return page;
    }

    /** Overlays runs; those of the same kind share a figure. */
    static Page page(List<Run> runs) {
        Run first = runs.getFirst();
        Page page;
        if (runs.size() == 1) {
            String command = first.root().path("config").path("collective").asText("");
            String name = command.isEmpty() ? first.kind().command() : command;
            String title =
                    first.kind() == Kind.PEERS ? "JCCL compared with its peers" : "jccl " + name;
            page = begin(title, first.root());
        } else {
            page = new Page("jccl report: " + runs.size() + " runs");
            page.add(origins(runs));
        }
        for (Kind kind : Kind.values()) {
            // Predictions are shown with the measured collectives.
            List<Run> some =
                    runs.stream()
                            .filter(r ->
                                    r.kind() == kind
                                            || (kind == Kind.COLLECTIVE
                                                    && r.kind() == Kind.TOPOLOGY))
                            .toList();
            if (!some.isEmpty() && kind != Kind.TOPOLOGY) {
                kind.add(page, some);
            }
        }
        return page;
    }

    private static Table origins(List<Run> runs) {
        List<List<String>> rows = new ArrayList<>();
        for (Run r : runs) {
            Origin o = Origin.of(r.root());
            rows.add(List.of(r.name(), o.command(), o.machine(), o.versions(), o.time()));
        }
        return new Table(
                "Runs", List.of("run", "command", "machine", "versions", "time"), rows, true);
    }
}

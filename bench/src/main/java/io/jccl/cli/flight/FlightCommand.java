package io.jccl.cli.flight;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Subcommand;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** Merges the recordings of all ranks. */
@Command(
        footer = {
            "",
            "Record each rank with",
            "  java -XX:StartFlightRecording:settings=none,+io.jccl.Collective#enabled=true,\\",
            "       +io.jccl.Progress#enabled=true,filename=rank-%%p.jfr ...",
            "or let a rank that fails leave its last operations: JCCL_FLIGHT_DIR=flight.",
            "Exit status: 0; 1 if the ranks diverged; 2 if the files cannot be used.",
        })
public final class FlightCommand extends Subcommand {
    @Parameters(
            paramLabel = "FILE",
            arity = "1..*",
            description =
                    "Recordings (.jfr) and histories (.json) of the ranks of one job, or folders of"
                            + " them.")
    private List<Path> files = new ArrayList<>();

    @Mixin private JsonOption json = new JsonOption();

    @Option(
            names = "--html",
            paramLabel = "<file>",
            description = "Write a timeline as one HTML page.")
    private @Nullable Path html;

    @Option(
            names = "--trace",
            paramLabel = "<file>",
            description = "Write a timeline of all ranks, for Perfetto (ui.perfetto.dev).")
    private @Nullable Path trace;

    @Option(
            names = "--horovod",
            paramLabel = "<file>",
            description =
                    "Write a timeline in Horovod's format: for each collective how long ranks"
                            + " waited for the last one, and how long it took.")
    private @Nullable Path horovod;

    @Option(
            names = "--last",
            paramLabel = "<count>",
            description =
                    "Operations of each rank in the timeline, the last ones or those around the"
                            + " first divergence (default: 5000).")
    private int last = 5000;

    @Option(
            names = "--no-align",
            description = "Do not adjust the ranks' clocks, as for ranks of one machine.")
    private boolean asTheyAre;

    /** Creates the command. */
    public FlightCommand() {}

    @Override
    public Integer call() throws IOException {
        require(last >= 1 && last <= 1_000_000, "--last is " + last + ", expected 1 to 1000000");
        OutputFiles outputs =
                new OutputFiles(line())
                        .add("--html", html)
                        .add("--trace", trace)
                        .add("--horovod", horovod)
                        .add(json);
        outputs.checkNotRead();
        PrintWriter err = err();
        List<World> worlds =
                Reader.read(
                        files,
                        warning -> err.println("jccl flight: warning: " + Output.oneLine(warning)));
        err.flush();
        // Those of folders too.
        outputs.checkNotRead(worlds.stream().flatMap(w -> w.files.stream()).toList());
        List<Findings> all = worlds.stream().map(w -> Analysis.of(w, !asTheyAre)).toList();
        Map<Path, String> written = new LinkedHashMap<>();
        if (html != null) {
            written.put(html, FlightHtml.page(worlds, all, !asTheyAre, last));
        }
        if (trace != null) {
            written.put(trace, FlightTrace.byRank(worlds, !asTheyAre, last));
        }
        if (horovod != null) {
            written.put(horovod, FlightTrace.horovod(worlds, !asTheyAre, last));
        }
        Output.write(written);
        PrintWriter out = out();
        PrintWriter text = json.text(out);
        for (int i = 0; i < all.size(); i++) {
            if (i > 0) {
                text.println();
            }
            FlightText.print(all.get(i), text);
        }
        out.flush();
        json.write(out, () -> document(all));
        return all.stream().anyMatch(f -> f.divergence() != null) ? 1 : 0;
    }

    private static String document(List<Findings> all) {
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("version", 1);
        report.put("communicators", all);
        try {
            return new ObjectMapper()
                    .enable(SerializationFeature.INDENT_OUTPUT)
                    .writeValueAsString(report);
        } catch (JsonProcessingException e) {
            throw new UncheckedIOException(e);
        }
    }
}

package io.jccl.cli.report;

import io.jccl.bench.report.Page;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Subcommand;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Parameters;

/** {@code jccl report}: overlays the results of several runs. */
@Command(
        footer = {
            "",
            "Try: jccl all_reduce -b 8 -e 64M -f 2 -g 2 -J a.json",
            "     jccl all_reduce -b 8 -e 64M -f 2 -g 4 -J b.json",
            "     jccl report a.json b.json --html report.html",
            "Exit status: 0; 2 if a file cannot be used.",
        })
public final class ReportCommand extends Subcommand {
    @Parameters(
            paramLabel = "FILE",
            arity = "1..*",
            description =
                    "What -J/--json of a collective, bandwidth, offload, matmul, train, fit-demo,"
                            + " probe or bench/peers/run wrote, and of topo for its predictions.")
    private List<Path> files = new ArrayList<>();

    @Mixin private HtmlOption html = new HtmlOption();

    /** Creates the command. */
    public ReportCommand() {}

    @Override
    public Integer call() throws IOException {
        new OutputFiles(line()).add(html).checkNotRead();
        List<Run> runs = new ArrayList<>();
        List<String> names = names();
        for (int i = 0; i < files.size(); i++) {
            runs.add(Run.read(files.get(i), names.get(i)));
        }
        Page page = Reports.page(runs);
        PrintWriter out = out();
        for (String line : page.text().split("\n", -1)) {
            out.println(Output.oneLine(line));
        }
        out.flush();
        html.write(page::html);
        return 0;
    }

    /** File names, without folders if they are unique. */
    private List<String> names() {
        if (files.size() == 1) {
            return List.of("");
        }
        List<String> names =
                files.stream()
                        .map(f -> String.valueOf(f.getFileName()).replaceFirst("\\.json$", ""))
                        .toList();
        Set<String> different = new HashSet<>(names);
        return different.size() == names.size()
                ? names
                : files.stream().map(Path::toString).toList();
    }
}

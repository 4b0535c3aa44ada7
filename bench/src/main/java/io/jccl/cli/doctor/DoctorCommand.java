package io.jccl.cli.doctor;

import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Parsed;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Version;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Reports what this machine offers collectives, which problems it has, and how to solve them. */
@Command(
        footer = {
            "",
            "Exit status: 0 if the host engine works; 1 if it does not; 2 for a mistake in the"
                    + " arguments; 4 if the host engine works, but something required does not.",
        })
public final class DoctorCommand extends Subcommand {
    private final Supplier<Machine> machine;

    @Mixin private JsonOption json = new JsonOption();

    @Option(
            names = "--require",
            paramLabel = "<what>",
            split = ",",
            converter = What.class,
            description =
                    "Fail unless this is usable: nccl, cuda, cublas (each with a GPU) or mpi. May be"
                            + " repeated, or a list with commas.")
    private List<Requirement> required = new ArrayList<>();

    @Option(
            names = "--ras",
            paramLabel = "<host:port>",
            arity = "0..1",
            fallbackValue = "",
            description =
                    "Query NCCL's RAS for the job that runs here: its communicators, and which"
                            + " ranks are missing or behind. Default address: NCCL_RAS_ADDR, or"
                            + " localhost:28028. Fails if there is no answer.")
    private @Nullable String ras;

    public DoctorCommand() {
        this(Machine::local);
    }

    /**
     * Creates the command for a test.
     *
     * @param machine what to examine
     */
    public DoctorCommand(Supplier<Machine> machine) {
        this.machine = machine;
    }

    static final class What extends Parsed<Requirement> {
        What() {
            super(Requirement::of);
        }
    }

    @Override
    public Integer call() throws IOException {
        PrintWriter out = out();
        new OutputFiles(line()).add(json);
        Machine examined = machine.get();
        Report report = Doctor.examine(Version.TEXT, examined, required);
        if (ras != null) {
            try {
                report = RasCheck.add(report, ras, examined.environment());
            } catch (IllegalArgumentException e) {
                throw mistake("--ras: " + e.getMessage());
            }
        }
        json.text(out).println(report.text().stripTrailing());
        out.flush();
        Report written = report;
        json.write(out, written::json);
        return report.status();
    }
}

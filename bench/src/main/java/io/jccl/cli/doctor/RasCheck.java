package io.jccl.cli.doctor;

import io.jccl.cli.shell.Text;
import io.jccl.error.JcclException;
import io.jccl.ras.RasClient;
import io.jccl.ras.RasReport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Adds NCCL's own report about a running job to the report about the machine. */
final class RasCheck {
    /** NCCL's own time limit for processes that do not respond; it may double it. */
    private static final int SECONDS = 5;

    private static final Duration LIMIT = Duration.ofSeconds(12);

    private RasCheck() {}

    /**
     * Adds NCCL's view.
     *
     * @param address {@code host:port}; empty for NCCL's variables and its default
     */
    static Report add(Report report, String address, Map<String, String> environment) {
        String place = address;
        try {
            place = place.isEmpty() ? RasClient.address(environment) : place;
            return with(report, RasClient.ask(place, SECONDS, LIMIT));
        } catch (JcclException e) {
            List<Problem> problems = new ArrayList<>();
            problems.add(
                    new Problem(
                            Severity.ERROR,
                            "ras-unreachable",
                            "NCCL's RAS returned no report: " + e.getMessage(),
                            "run it on a node of a running job, or give its address:"
                                    + " --ras=host:port"));
            return with(report, problems, false, String.valueOf(e.getMessage()), null);
        }
    }

    private static Report with(Report report, RasReport ras) {
        List<Problem> problems = new ArrayList<>();
        for (RasReport.Finding f : ras.findings()) {
            problems.add(
                    new Problem(
                            f.kind() == RasReport.Kind.TIMEOUT ? Severity.INFO : Severity.WARNING,
                            "ras-" + f.kind(),
                            f.toString(),
                            action(f.kind())));
        }
        return with(
                report,
                problems,
                true,
                "NCCL " + ras.version() + ", " + Text.count(ras.groups().size(), "communicator"),
                ras);
    }

    private static Report with(
            Report report,
            List<Problem> problems,
            boolean answered,
            String reason,
            @Nullable RasReport ras) {
        problems.addAll(report.problems());
        problems.sort(Comparator.comparing(Problem::severity));
        List<Requirement.Result> required = new ArrayList<>(report.required());
        required.add(new Requirement.Result("ras", answered, reason));
        return new Report(report.version(), report.facts(), problems, required, ras);
    }

    private static String action(RasReport.Kind kind) {
        return switch (kind) {
            case DEAD -> "look at that process and its machine; the job has to be restarted";
            case MISSING -> "check whether that process runs or is stopped, and its network";
            case BEHIND -> "look at its stack (jstack): it waits elsewhere, or has left the loop";
            case STATUS -> "look at the log of the rank that differs from the others";
            case ERROR -> "look at that rank's own message; NCCL_DEBUG=WARN has more";
            case TIMEOUT -> "query again; if it persists, look at the network between the nodes";
        };
    }
}

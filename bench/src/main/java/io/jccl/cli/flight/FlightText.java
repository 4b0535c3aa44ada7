package io.jccl.cli.flight;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.flight.Findings.Call;
import io.jccl.cli.flight.Findings.Divergence;
import io.jccl.cli.flight.Findings.Lateness;
import io.jccl.cli.flight.Findings.Link;
import io.jccl.cli.flight.Findings.RankFindings;
import io.jccl.cli.shell.Text;
import java.io.PrintWriter;
import org.jspecify.annotations.Nullable;

/** Findings as text. */
final class FlightText {
    private FlightText() {}

    static void print(Findings f, PrintWriter out) {
        out.println(
                format(
                        "communicator %s (%s), %s, %s recorded%s",
                        f.communicator(),
                        f.engine(),
                        Text.count(f.size(), "rank"),
                        f.operations() == 1
                                ? "1 operation"
                                : format("%,d operations", f.operations()),
                        f.aligned() ? ", clocks set by the ends of collectives" : ""));
        if (!f.missing().isEmpty()) {
            out.println("no recording of ranks " + f.missing());
        }
        divergence(f.divergence(), out);
        for (RankFindings r : f.ranks()) {
            if (r.unfinished() != null || r.site() != null) {
                out.println(
                        "rank "
                                + r.rank()
                                + (r.process().isEmpty() ? "" : " (" + r.process() + ")")
                                + (r.last() == null
                                        ? " has called no collective"
                                        : " called " + r.last() + " last")
                                + (r.unfinished() == null ? "" : "; unfinished: " + r.unfinished())
                                + (r.site() == null ? "" : "; at " + r.site()));
            }
        }
        ranks(f, out);
        links(f, out);
        f.notes().forEach(n -> out.println("note: " + n));
        out.flush();
    }

    private static void divergence(@Nullable Divergence d, PrintWriter out) {
        if (d == null) {
            out.println("no divergence: all recorded ranks called the same collectives");
            return;
        }
        out.println(
                "FIRST DIVERGENCE: collective #"
                        + d.sequence()
                        + (d.kind().equals("missing") ? " is missing" : " differs")
                        + (d.behind().isEmpty() ? "" : " on rank(s) " + d.behind()));
        // Ranks that are behind come first.
        d.calls().stream().filter(c -> d.behind().contains(c.rank())).forEach(c -> call(c, out));
        d.calls().stream().filter(c -> !d.behind().contains(c.rank())).forEach(c -> call(c, out));
    }

    private static void call(Call c, PrintWriter out) {
        out.println(
                "  rank "
                        + c.rank()
                        + (c.call() != null
                                ? " called " + c.call()
                                : c.last() != null
                                        ? " has not reached it; its last is " + c.last()
                                        : " has no record of it"));
    }

    private static void ranks(Findings f, PrintWriter out) {
        out.println();
        out.println("lateness: time from the first rank's arrival at a collective to this rank's");
        out.print(
                format(
                        "%6s %11s %12s %11s %11s %11s %11s %8s%n",
                        "rank",
                        "operations",
                        "clock (us)",
                        "p50 (us)",
                        "p90 (us)",
                        "p99 (us)",
                        "max (us)",
                        "last"));
        for (RankFindings r : f.ranks()) {
            Lateness l = r.lateness();
            out.print(
                    format(
                            "%6d %11d %12.1f%s%n",
                            r.rank(),
                            r.operations(),
                            r.offset(),
                            l == null
                                    ? "           -"
                                    : format(
                                            " %11.1f %11.1f %11.1f %11.1f %6.1f %%",
                                            l.p50(),
                                            l.p90(),
                                            l.p99(),
                                            l.max(),
                                            100 * l.lastShare())));
        }
    }

    private static void links(Findings f, PrintWriter out) {
        if (f.slowest().isEmpty()) {
            return;
        }
        out.println();
        out.println("slowest links by send and recv");
        out.print(format("%12s %10s %14s %12s%n", "link", "messages", "bytes", "bandwidth"));
        for (Link l : f.slowest()) {
            out.print(
                    format(
                            "%12s %10d %14d %7.3f GB/s%n",
                            l.from() + " -> " + l.to(), l.messages(), l.bytes(), l.gbPerSecond()));
        }
    }
}

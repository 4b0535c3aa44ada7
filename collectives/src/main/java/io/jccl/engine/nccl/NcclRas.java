package io.jccl.engine.nccl;

import io.jccl.internal.Deadline;
import io.jccl.ras.RasClient;
import io.jccl.ras.RasReport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * A query of NCCL's own RAS service for the report of a timeout, made while the ranks report their
 * progress. Its text is empty if RAS does not answer.
 *
 * <p><b>Threads:</b> queries on its own daemon thread; any thread may read the answer.
 */
final class NcclRas {
    private static final Duration LIMIT = Duration.ofSeconds(2);
    private static final int LINES = 8;

    /** RAS queries all processes of the job, so not all ranks of a large job send a query. */
    private static final int ASKERS = 16;

    private final CountDownLatch done = new CountDownLatch(1);
    private final long deadline = Deadline.after(LIMIT);
    private volatile String text = "";

    private NcclRas() {}

    static NcclRas ask(int rank, int size) {
        NcclRas ras = new NcclRas();
        if (rank % Math.max(1, size / ASKERS) == 0) {
            Thread.ofPlatform().daemon().name("jccl-ras").start(ras::run);
        } else {
            ras.done.countDown();
        }
        return ras;
    }

    private void run() {
        try {
            String address = RasClient.address(System.getenv());
            text = text(RasClient.ask(address, 1, LIMIT), ProcessHandle.current().pid());
        } catch (RuntimeException e) {
            // The report is complete without it.
        } finally {
            done.countDown();
        }
    }

    /** Whether there is nothing left to wait for. */
    boolean isDone() {
        return done.getCount() == 0 || System.nanoTime() - deadline > 0;
    }

    /** Waits for the answer until the two seconds are over. */
    String await() {
        try {
            done.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return text;
    }

    /** A line for each finding, each after a line break; empty if there are none. */
    String text() {
        return text;
    }

    /**
     * The findings as lines.
     *
     * @param pid this process: jobs on one machine share the port, and findings of another job must
     *     not be reported
     */
    static String text(RasReport report, long pid) {
        List<RasReport.Finding> found = report.findings();
        boolean nameless = report.processes().isEmpty();
        if (found.isEmpty() || !(nameless || report.processes().contains(pid))) {
            return "";
        }
        return found.stream()
                .limit(LINES)
                .map(f -> "\n  " + f)
                .collect(
                        Collectors.joining(
                                "",
                                "\nNCCL's RAS reports"
                                        + (nameless ? " (perhaps of another job here):" : ":"),
                                found.size() > LINES
                                        ? "\n  and "
                                                + (found.size() - LINES)
                                                + " more: jccl doctor --ras"
                                        : ""));
    }
}

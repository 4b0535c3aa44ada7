package io.jccl.testkit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A RAS service that answers as NCCL 2.30.7 does. Line numbers are those of its {@code
 * src/ras/client_support.cc}. Commands: 360-456; the connection ends with the report: 509.
 *
 * <p>Communicators must differ in size or state, since each is a group of its own here.
 */
@SuppressWarnings({"AnnotateFormatMethod", "StringConcatToTextBlock"}) // lines as in the source
public final class FakeRas implements AutoCloseable {
    private static final List<String> FUNCTIONS = // init.cc:52
            List.of("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce");

    private static final List<String> STATES = // 984
            List.of("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT");

    private static final List<String> RESULTS = // ncclErrorToString, 1982-2001
            List.of(
                    "",
                    "Unhandled CUDA error",
                    "System error",
                    "Internal error",
                    "Invalid argument",
                    "Invalid usage",
                    "Remote process error");

    /** A rank that gave data. */
    public record Rank(int rank, long pid, int init, int async, boolean abort, long... counts) {}

    /** One that gave none. */
    public record Missing(int rank, long pid, boolean silent, boolean dead) {}

    public record Comm(long hash, int size, List<Rank> ranks, List<Missing> missing) {}

    /** How it misbehaves. */
    public enum Manner {
        NORMAL,
        /** NCCL before 2.28.7 knows no formats. */
        OLD,
        /** Stopped: the kernel accepts, nobody answers. */
        SILENT,
        /** Answers all but the report. */
        HANGING,
        /** The first connection meets a stopped process, the next another one. */
        SILENT_ONCE,
        /** Another program. */
        OTHER,
        /** Refuses timeouts. */
        REFUSING,
        /** Ends in the middle of its report. */
        CUT,
        /** Closes without a report. */
        EMPTY
    }

    private final ServerSocket server;
    private final Manner manner;
    private volatile List<Comm> comms;
    private final int timeouts;
    private final AtomicInteger connections = new AtomicInteger();
    private final ConcurrentLinkedQueue<Socket> open = new ConcurrentLinkedQueue<>();

    /** All commands that came. */
    public final ConcurrentLinkedQueue<String> commands = new ConcurrentLinkedQueue<>();

    public FakeRas(Manner manner, int timeouts, Comm... comms) {
        this.manner = manner;
        this.timeouts = timeouts;
        this.comms = List.of(comms);
        try {
            server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
        Thread.ofPlatform().daemon().name("fake-ras").start(this::accept);
    }

    /** What it reports from now on, such as ranks whose processes did not exist before. */
    public void report(Comm... known) {
        comms = List.of(known);
    }

    /** Where it listens. */
    public String address() {
        return server.getInetAddress().getHostAddress() + ":" + server.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        server.close();
        for (Socket s : open) {
            s.close();
        }
    }

    private void accept() {
        try {
            while (true) {
                Socket s = server.accept();
                open.add(s);
                Thread.ofPlatform().daemon().start(() -> serve(s));
            }
        } catch (IOException e) {
            // closed
        }
    }

    private void serve(Socket socket) {
        int number = connections.incrementAndGet();
        if (manner == Manner.SILENT || (manner == Manner.SILENT_ONCE && number == 1)) {
            return;
        }
        try (socket) {
            var in =
                    new BufferedReader(
                            new InputStreamReader(
                                    socket.getInputStream(), StandardCharsets.US_ASCII));
            OutputStream out = socket.getOutputStream();
            boolean json = false;
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                commands.add(line);
                String command = line.toLowerCase(Locale.ROOT);
                String answer;
                if (manner == Manner.OTHER) {
                    answer = "HTTP/1.1 400 Bad Request\n";
                } else if (command.startsWith("client protocol ")) { // 360-370
                    answer = "SERVER PROTOCOL 2\n";
                } else if (command.startsWith("timeout ")) { // 371-379
                    answer =
                            manner == Manner.REFUSING || !command.matches("timeout \\d+")
                                    ? "ERROR: Invalid timeout value " + line.substring(8) + "\n"
                                    : "OK\n";
                } else if (command.startsWith("set format ") && manner != Manner.OLD) { // 388-398
                    json = command.equals("set format json");
                    answer = "OK\n";
                } else if (command.equals("status") || command.equals("verbose status")) {
                    if (manner == Manner.HANGING) {
                        continue;
                    }
                    String report = manner == Manner.EMPTY ? "" : json ? json() : text();
                    int end = manner == Manner.CUT ? report.length() * 2 / 3 : report.length();
                    out.write(report.substring(0, end).getBytes(StandardCharsets.UTF_8));
                    return;
                } else { // 450
                    answer = "ERROR: Unknown command " + line + "\n";
                }
                out.write(answer.getBytes(StandardCharsets.US_ASCII));
            }
        } catch (IOException e) {
            // The client is gone.
        }
    }

    private static String f(String format, Object... args) {
        return String.format(Locale.ROOT, format, args);
    }

    private static int state(Rank r) { // 1143-1157
        return r.abort ? 4 : r.init == 0 ? 2 : 1;
    }

    private static List<Integer> states(Comm c) {
        List<Integer> all = new ArrayList<>();
        c.ranks.forEach(r -> all.add(state(r)));
        if (c.missing.stream().anyMatch(m -> !m.silent)) {
            all.add(0);
        }
        return all;
    }

    private static boolean bad(int result) {
        return result != 0 && result != 7;
    }

    private static boolean differs(Comm c, int function) {
        return c.ranks.stream().mapToLong(r -> r.counts[function]).distinct().count() > 1;
    }

    private static String errors(Comm c) { // 986-995
        String all = "";
        if (c.missing.stream().anyMatch(Missing::silent)) {
            all += ",INCOMPLETE";
        }
        if (c.ranks.stream().anyMatch(r -> bad(r.init) || bad(r.async))) {
            all += ",ERROR";
        }
        boolean counts = false;
        for (int i = 0; i < FUNCTIONS.size(); i++) {
            counts |= differs(c, i);
        }
        if (counts || states(c).stream().distinct().count() > 1) {
            all += ",MISMATCH";
        }
        return all.isEmpty() ? "OK" : all.substring(1);
    }

    private static String who(int rank, long pid) { // rasGpuToString, 1963
        return f("GPU %d managed by process %d on node 192.0.2.7\n", rank, pid);
    }

    /** rasClientRunInit and rasClientRunComms, of one node with a process for each rank. */
    private String text() {
        int n = comms.stream().mapToInt(Comm::size).max().orElse(0);
        StringBuilder o = new StringBuilder();
        o.append("NCCL version 2.30.7 compiled with CUDA 13.0\n"); // 567
        o.append("CUDA runtime version 13000, driver version 13000\n\n"); // 569
        o.append("Job summary\n===========\n\n"); // 623
        o.append("  Nodes  Processes         GPUs  Processes     GPUs\n"); // 628
        o.append("(total)   per node  per process    (total)  (total)\n");
        o.append(f("%7d  %9d  %11d  %9d  %7d\n", 1, n, 1, n, n));
        o.append("\nCommunicators..."); // 811
        o.append(f(" (%.3fs)\n=============\n\n", 0.001)); // 1051
        if (comms.isEmpty()) {
            o.append("No communicator data collected!\n"); // 1209
        } else {
            o.append( // 1206
                    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
                            + "    #  in group  per comm  per node  per comm  in group\n");
        }
        for (int i = 0; i < comms.size(); i++) { // 1244
            Comm c = comms.get(i);
            o.append(
                    f(
                            "%5d  %8d  %8d  %8s  %8d  %8d  %8s  %6s\n",
                            i,
                            1,
                            1,
                            "" + c.ranks.size(),
                            c.size,
                            c.ranks.size(),
                            STATES.get(states(c).stream().reduce(0, Math::max)),
                            errors(c)));
        }
        o.append("\nErrors\n======\n\n"); // 1255
        List<Missing> silent = new ArrayList<>();
        List<Missing> dead = new ArrayList<>();
        if (!comms.isEmpty()) {
            for (Missing m : comms.get(0).missing) {
                if (m.silent) {
                    (m.dead ? dead : silent).add(m);
                }
            }
        }
        if (!silent.isEmpty()) { // 1259
            o.append(
                    f(
                            "INCOMPLETE\n  Missing communicator data from %d job process%s\n",
                            silent.size(), silent.size() > 1 ? "es" : ""));
            silent.forEach(m -> o.append(process(m))); // 1312
            o.append("\n");
        }
        if (!dead.isEmpty()) { // 1329
            o.append(
                    f(
                            "DEAD\n  %d job process%s considered dead (unreachable via the RAS"
                                    + " network)\n",
                            dead.size(), dead.size() > 1 ? "es are" : " is"));
            dead.forEach(m -> o.append(process(m)));
            o.append("\n");
        }
        for (int i = 0; i < comms.size(); i++) {
            incomplete(o, i);
        }
        o.append("Warnings\n========\n\n"); // 1421
        if (timeouts > 0) { // 1425
            o.append(
                    f(
                            "TIMEOUT\n  Encountered %d communication timeout%s while gathering"
                                    + " communicator data\n\n",
                            timeouts, timeouts > 1 ? "s" : ""));
        }
        for (int i = 0; i < comms.size(); i++) {
            mismatch(o, i);
        }
        return o.toString();
    }

    private static String process(Missing m) {
        return f("  Process %d on node 192.0.2.7 managing GPU %d\n", m.pid, m.rank);
    }

    private void incomplete(StringBuilder o, int i) {
        Comm c = comms.get(i);
        List<Missing> silent = c.missing.stream().filter(Missing::silent).toList();
        if (!silent.isEmpty()) { // 1368-1396
            o.append(
                    f(
                            "#%d-%d (%016x) INCOMPLETE\n  Missing communicator data from %d"
                                    + " rank%s\n",
                            i, 0, c.hash, silent.size(), silent.size() > 1 ? "s" : ""));
            silent.forEach(m -> o.append(f("  Rank %d -- ", m.rank)).append(who(m.rank, m.pid)));
            o.append("\n");
        }
        if (errors(c).contains("ERROR")) { // 1399-1421, 1700-1723; one rank of a kind
            o.append(f("#%d-%d (%016x) ERROR\n", i, 0, c.hash));
            for (Rank r : c.ranks) {
                if (bad(r.async)) {
                    o.append("  Asynchronous error on 1 rank\n");
                    o.append(f("  Rank %d reported %s -- ", r.rank, RESULTS.get(r.async)));
                    o.append(who(r.rank, r.pid));
                }
            }
            o.append("\n");
        }
    }

    private void mismatch(StringBuilder o, int i) { // 1433-1655
        Comm c = comms.get(i);
        if (!errors(c).contains("MISMATCH")) {
            return;
        }
        o.append(f("#%d-%d (%016x) MISMATCH\n", i, 0, c.hash));
        if (states(c).stream().distinct().count() > 1) {
            o.append("  Communicator ranks have different status\n"); // 1450
            TreeMap<Integer, List<Rank>> by = new TreeMap<>();
            c.ranks.forEach(r -> by.computeIfAbsent(state(r), s -> new ArrayList<>()).add(r));
            by.forEach((s, all) -> status(o, s, all, c.size));
            for (Missing m : c.missing) {
                if (!m.silent) { // 1541
                    o.append(f("  Rank %d has status NOCOMM -- ", m.rank))
                            .append(who(m.rank, m.pid));
                }
            }
        }
        for (int k = 0; k < FUNCTIONS.size(); k++) {
            if (differs(c, k)) { // 1574
                o.append(
                        f(
                                "  Communicator ranks have different %s operation counts\n",
                                FUNCTIONS.get(k)));
                TreeMap<Long, List<Rank>> by = new TreeMap<>();
                for (Rank r : c.ranks) {
                    by.computeIfAbsent(r.counts[k], v -> new ArrayList<>()).add(r);
                }
                by.descendingMap().forEach((v, all) -> counts(o, v, all, c.size));
                o.append("\n");
            }
        }
    }

    private static void status(StringBuilder o, int state, List<Rank> all, int size) {
        if (all.size() > 1) { // 1494
            o.append(f("  %d ranks have status %s\n", all.size(), STATES.get(state)));
        }
        if (all.size() == 1 || all.size() < size * 0.5) { // rasCountIsOutlier, 2132, verbose
            for (Rank r : all) {
                o.append(
                        all.size() > 1
                                ? f("  Rank %d -- ", r.rank)
                                : f("  Rank %d has status %s -- ", r.rank, STATES.get(state)));
                o.append(who(r.rank, r.pid));
            }
        }
    }

    private static void counts(StringBuilder o, long value, List<Rank> all, int size) {
        String what = // 1603-1650
                value > 0 ? "launched up to operation " + value : "not launched any operations";
        if (all.size() > 1) {
            o.append(f("  %d ranks have %s\n", all.size(), what));
        }
        if (all.size() == 1 || all.size() < size * 0.5) {
            for (Rank r : all) {
                o.append(
                        all.size() > 1
                                ? f("  Rank %d -- ", r.rank)
                                : f("  Rank %d has %s -- ", r.rank, what));
                o.append(who(r.rank, r.pid));
            }
        }
    }

    /** rasDumpCommsToJSON: 1854-1945, 2018-2090. */
    private String json() {
        StringBuilder o = new StringBuilder();
        o.append("{\n  \"nccl_version\": \"2.30.7\",\n  \"cuda_runtime_version\": 13000,\n");
        o.append("  \"cuda_driver_version\": 13000,\n");
        o.append("  \"timestamp\": \"2026-01-02 03:04:05\",\n");
        o.append(f("  \"communicators_count\": %d,\n  \"communicators\": [\n", comms.size()));
        for (int i = 0; i < comms.size(); i++) {
            Comm c = comms.get(i);
            o.append(i > 0 ? ",\n" : "");
            o.append(f("    {\n      \"hash\": \"0x%x\",\n", c.hash));
            o.append(
                    f(
                            "      \"secondary_hash\": \"0x%x:0x%x\",\n      \"size\": %d,\n",
                            1, 2, c.size));
            o.append(f("      \"ranks_count\": %d,\n", c.ranks.size()));
            o.append(f("      \"missing_ranks_count\": %d,\n", c.missing.size()));
            o.append("      \"ranks\": [\n");
            for (int j = 0; j < c.ranks.size(); j++) {
                Rank r = c.ranks.get(j);
                o.append(j > 0 ? ",\n" : "").append(head(r.rank, r.pid));
                o.append(f("            \"init_state\": %d,\n", r.init));
                o.append(f("            \"async_error\": %d,\n", r.async));
                o.append("            \"finalize_called\": false,\n");
                o.append("            \"destroy_flag\": false,\n");
                o.append(f("            \"abort_flag\": %s\n          },\n", r.abort));
                o.append("          \"collective_counts\": {\n");
                for (int k = 0; k < FUNCTIONS.size(); k++) {
                    o.append(f("            \"%s\": %d", FUNCTIONS.get(k), r.counts[k]));
                    o.append(k < FUNCTIONS.size() - 1 ? ",\n" : "\n");
                }
                o.append("          }\n        }");
            }
            o.append("\n      ],\n      \"missing_ranks\": [\n");
            for (int j = 0; j < c.missing.size(); j++) {
                Missing m = c.missing.get(j);
                o.append(j > 0 ? ",\n" : "").append(head(m.rank, m.pid));
                o.append(f("            \"unresponsive\": %s,\n", m.silent));
                o.append(f("            \"considered_dead\": %s\n          }\n        }", m.dead));
            }
            o.append("\n      ]\n    }");
        }
        o.append("\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.001,\n");
        return o.append(f("    \"timeouts_count\": %d\n  }\n}\n", timeouts)).toString();
    }

    private static String head(int rank, long pid) {
        return f(
                "        {\n          \"rank\": %d,\n          \"host\": \"192.0.2.7\",\n"
                        + "          \"pid\": %d,\n          \"cuda_dev\": %d,\n"
                        + "          \"nvml_dev\": %d,\n          \"status\": {\n",
                rank, pid, rank, rank);
    }
}

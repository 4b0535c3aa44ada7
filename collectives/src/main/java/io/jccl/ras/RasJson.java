package io.jccl.ras;

import io.jccl.ras.RasReport.Finding;
import io.jccl.ras.RasReport.Group;
import io.jccl.ras.RasReport.Kind;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * The answer of NCCL 2.28.7 and newer, in JSON: every rank with its state and its counts. Who is
 * behind is worked out here, by NCCL's own rules for its text.
 */
final class RasJson {
    /** {@code ncclResult_t}: a communicator that is being made, or waits, is in order. */
    private static final int IN_PROGRESS = 7;

    private static final List<String> RESULTS =
            List.of(
                    "success",
                    "unhandled CUDA error",
                    "system error",
                    "internal error",
                    "invalid argument",
                    "invalid usage",
                    "remote process error",
                    "operation in progress",
                    "timeout");

    private static final List<String> STATES =
            List.of("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT");

    private final List<Group> groups = new ArrayList<>();
    private final List<Finding> findings = new ArrayList<>();
    private final Set<Long> processes = new LinkedHashSet<>();

    private RasJson() {}

    static RasReport parse(String text) {
        JsonReader reader = new JsonReader(text);
        Map<String, Object> root = reader.object();
        RasJson parsed = new RasJson();
        for (Map<?, ?> c : maps(root, "communicators")) {
            parsed.communicator(c);
        }
        if (root.get("ras") instanceof Map<?, ?> ras) {
            long timeouts = number(ras, "timeouts_count", 0);
            if (timeouts > 0) {
                parsed.findings.add(new Finding(Kind.TIMEOUT, "", -1, timeouts(timeouts)));
            }
        }
        return new RasReport(
                text(root, "nccl_version", "?"),
                parsed.groups,
                parsed.findings,
                parsed.processes,
                !reader.cut());
    }

    static String timeouts(long count) {
        return count + " communication timeout(s) while NCCL gathered this; data may be missing";
    }

    private void communicator(Map<?, ?> c) {
        String hash = text(c, "hash", "?");
        List<Map<?, ?>> ranks = maps(c, "ranks");
        int before = findings.size();
        Set<String> errors = new LinkedHashSet<>();
        Set<Integer> states = new TreeSet<>();
        for (Map<?, ?> r : maps(c, "missing_ranks")) {
            Map<?, ?> status = map(r, "status");
            boolean silent = Boolean.TRUE.equals(status.get("unresponsive"));
            boolean dead = Boolean.TRUE.equals(status.get("considered_dead"));
            if (silent || dead) {
                errors.add("INCOMPLETE");
            } else {
                states.add(0);
            }
            add(
                    dead ? Kind.DEAD : silent ? Kind.MISSING : Kind.STATUS,
                    hash,
                    r,
                    dead
                            ? "is considered dead"
                            : silent ? "gave no data" : "does not know the communicator");
        }
        for (Map<?, ?> r : ranks) {
            processes.add(number(r, "pid", -1));
            states.add(state(map(r, "status")));
            errors(hash, r, errors);
        }
        states(hash, ranks, states);
        behind(hash, ranks);
        for (Finding f : findings.subList(before, findings.size())) {
            if (f.kind() == Kind.BEHIND || f.kind() == Kind.STATUS) {
                errors.add("MISMATCH");
            }
        }
        groups.add(
                new Group(
                        hash,
                        1,
                        (int) number(c, "size", ranks.size()),
                        ranks.size(),
                        STATES.get(states.stream().reduce(0, Math::max)),
                        errors.isEmpty() ? "OK" : String.join(",", errors)));
    }

    private void errors(String hash, Map<?, ?> rank, Set<String> errors) {
        for (String what : List.of("init_state", "async_error")) {
            int code = (int) number(map(rank, "status"), what, 0);
            if (code != 0 && code != IN_PROGRESS) {
                errors.add("ERROR");
                String name =
                        code > 0 && code < RESULTS.size() ? RESULTS.get(code) : "error " + code;
                add(
                        Kind.ERROR,
                        hash,
                        rank,
                        "reported " + name + (what.startsWith("init") ? " while joining" : ""));
            }
        }
    }

    /** client_support.cc, 1143-1157: an abort comes before a finalize, that before the rest. */
    private static int state(Map<?, ?> status) {
        if (Boolean.TRUE.equals(status.get("abort_flag"))) {
            return 4;
        }
        if (Boolean.TRUE.equals(status.get("finalize_called"))
                || Boolean.TRUE.equals(status.get("destroy_flag"))) {
            return 3;
        }
        return number(status, "init_state", 0) == 0 ? 2 : 1;
    }

    private void states(String hash, List<Map<?, ?>> ranks, Set<Integer> states) {
        if (states.size() > 1) {
            for (Map<?, ?> r : ranks) {
                add(Kind.STATUS, hash, r, "has status " + STATES.get(state(map(r, "status"))));
            }
        }
    }

    private void behind(String hash, List<Map<?, ?>> ranks) {
        Map<Object, Long> most = new HashMap<>();
        for (Map<?, ?> r : ranks) {
            for (Object operation : map(r, "collective_counts").keySet()) {
                most.merge(operation, count(r, operation), Math::max);
            }
        }
        for (Map<?, ?> r : ranks) {
            for (Object operation : map(r, "collective_counts").keySet()) {
                long count = count(r, operation);
                long max = most.getOrDefault(operation, 0L);
                if (count < max) {
                    add(Kind.BEHIND, hash, r, "has launched " + launched(count, max, operation));
                }
            }
        }
    }

    static String launched(long count, long max, Object operation) {
        return count + " of " + max + " operations of the kind " + operation;
    }

    private static long count(Map<?, ?> rank, Object operation) {
        return number(map(rank, "collective_counts"), operation, 0);
    }

    private void add(Kind kind, String hash, Map<?, ?> rank, String what) {
        long process = number(rank, "pid", -1);
        // NCCL does not know the process of a rank that it has forgotten.
        String who =
                process < 0
                        ? ""
                        : " (GPU %s of process %s on node %s)"
                                .formatted(
                                        number(rank, "cuda_dev", -1),
                                        process,
                                        text(rank, "host", "?"));
        findings.add(new Finding(kind, hash, (int) number(rank, "rank", -1), what + who));
    }

    private static Map<?, ?> map(Map<?, ?> from, String key) {
        return from.get(key) instanceof Map<?, ?> m ? m : Map.of();
    }

    private static List<Map<?, ?>> maps(Map<?, ?> from, String key) {
        List<Map<?, ?>> maps = new ArrayList<>();
        if (from.get(key) instanceof List<?> list) {
            for (Object o : list) {
                if (o instanceof Map<?, ?> m) {
                    maps.add(m);
                }
            }
        }
        return maps;
    }

    private static long number(Map<?, ?> from, Object key, long other) {
        return from.get(key) instanceof Double d ? d.longValue() : other;
    }

    private static String text(Map<?, ?> from, String key, String other) {
        return from.get(key) instanceof String s ? s : other;
    }
}

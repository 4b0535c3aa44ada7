package io.jccl.cli.report;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.report.Page;
import io.jccl.cli.shell.Version;
import io.jccl.internal.Cpus;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * The origin of a document.
 *
 * @param command the command line
 * @param machine processor and system; for collectives also the hosts
 * @param versions of JCCL and Java
 * @param time time of the measurement, in UTC
 */
record Origin(String command, String machine, String versions, String time) {
    private static final String KEY = "run";

    /**
     * Records this process in a document.
     *
     * @param document the whole document
     * @param command the command's words, starting with jccl
     */
    static void put(ObjectNode document, List<String> command) {
        ObjectNode run = document.putObject(KEY);
        run.put("command", String.join(" ", command));
        run.put("time", Instant.now().truncatedTo(ChronoUnit.SECONDS).toString());
        run.put("jccl", Version.TEXT);
        run.put("java", Runtime.version() + " (" + System.getProperty("java.vm.name") + ")");
        run.put("os", System.getProperty("os.name") + " " + System.getProperty("os.version"));
        run.put("cpu", Cpus.model());
        run.put("processors", Cpus.processors());
    }

    /** Reads the origin from a document; documents of earlier versions contain less. */
    static Origin of(JsonNode document) {
        JsonNode run = document.path(KEY);
        String command = run.path("command").asText("");
        if (command.isEmpty()) {
            command = strings(document.path("args")).collect(Collectors.joining(" "));
        }
        if (command.isEmpty() && Kind.of(document) == Kind.PROBE) {
            command =
                    "jccl probe "
                            + strings(document.path("arguments")).collect(Collectors.joining(" "));
        }
        if (command.isEmpty() && Kind.of(document) == Kind.TOPOLOGY) {
            return new Origin("jccl topo", document.path("name").asText(""), "", "");
        }
        if (Kind.of(document) == Kind.PEERS) {
            return new Origin(
                    "bench/peers/run",
                    document.path("machine").asText("")
                            + ", "
                            + document.path("cores").asText("")
                            + " processors",
                    strings(document.path("versions")).collect(Collectors.joining("; ")),
                    "");
        }
        List<String> machine = new ArrayList<>();
        StreamSupport.stream(document.path("devices").spliterator(), false)
                .map(d -> d.path("hostname").asText("") + ", " + d.path("device_info").asText(""))
                .distinct()
                .forEach(machine::add);
        String cpu = run.path("cpu").asText(document.path("machine").path("cpu").asText(""));
        if (!cpu.isEmpty() && machine.stream().noneMatch(m -> m.endsWith(cpu))) {
            machine.add(cpu);
        }
        if (run.has("processors")) {
            machine.add(run.path("processors").asText() + " processors");
        }
        String os = run.path("os").asText("");
        if (!os.isEmpty()) {
            machine.add(os);
        }
        JsonNode inner = document.size() == 1 ? document.elements().next() : document;
        String version =
                run.path("jccl")
                        .asText(
                                document.path("jccl_version")
                                        .asText(inner.path("version").asText("")));
        String java = run.path("java").asText("");
        return new Origin(
                command,
                String.join("; ", machine),
                (version.isEmpty() ? "" : "JCCL " + version)
                        + (java.isEmpty() ? "" : ", Java " + java),
                run.path("time").asText(document.path("start_time").asText("")));
    }

    private static Stream<String> strings(JsonNode array) {
        return StreamSupport.stream(array.spliterator(), false).map(JsonNode::asText);
    }

    void addTo(Page page) {
        page.fact("command", command)
                .fact("machine", machine)
                .fact("versions", versions)
                .fact("time", time);
    }
}

package io.jccl.cli.doctor;

import static io.jccl.cli.doctor.Severity.INFO;
import static io.jccl.cli.doctor.Severity.WARNING;

import io.jccl.cli.doctor.Checks.Table;
import io.jccl.cli.doctor.Facts.ConfigFile;
import io.jccl.cli.doctor.Facts.Library;
import io.jccl.cli.doctor.Facts.Nic;
import io.jccl.cli.doctor.Facts.Variable;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Rows of {@link Checks} on the network, libraries and their settings. */
final class SoftwareChecks {
    /** Settings that help to find a fault, and cost speed if they are left on. */
    private static final Map<String, String> SLOW =
            Map.of(
                    "NCCL_P2P_DISABLE=1", "GPUs do not reach each other's memory",
                    "NCCL_SHM_DISABLE=1", "processes of one machine talk through the network",
                    "NCCL_IB_DISABLE=1", "InfiniBand and RoCE are not used",
                    "NCCL_NET_GDR_LEVEL=LOC", "network cards do not reach GPU memory",
                    "CUDA_LAUNCH_BLOCKING=1", "every kernel is waited for",
                    "NCCL_DEBUG=TRACE", "every call is logged");

    private SoftwareChecks() {}

    static void network(Table t) {
        t.row(
                WARNING,
                "no-verbs",
                f -> !f.network().devices().isEmpty() && f.network().verbs().isEmpty(),
                f ->
                        "InfiniBand or RoCE devices are there ("
                                + f.network().devices().stream()
                                        .map(Nic::name)
                                        .collect(Collectors.joining(" "))
                                + "), but no /dev/infiniband/uverbs0 or the like",
                "start the container with --device=/dev/infiniband",
                "modprobe ib_uverbs");
        t.row(
                INFO,
                "port-down",
                f -> !down(f).isEmpty(),
                f -> "network ports are not active: " + down(f),
                "leave them out (NCCL_IB_HCA), or see the cable and the subnet manager");
        t.row(
                INFO,
                "no-peer-memory",
                f ->
                        f.hasNvidia()
                                && !f.network().devices().isEmpty()
                                && f.driver().version().known()
                                && !f.driver().openModule()
                                && !f.driver().peerMemory(),
                f ->
                        "network cards cannot reach GPU memory: module nvidia_peermem is not loaded,"
                                + " and only the open driver does without",
                "modprobe nvidia-peermem");
    }

    private static String down(Facts f) {
        return f.network().devices().stream()
                .flatMap(n ->
                        n.ports().stream()
                                .filter(p -> p.state().fits(s -> !s.equals("ACTIVE")))
                                .map(p ->
                                        n.name() + "/" + p.number() + " " + Texts.text(p.state())))
                .collect(Collectors.joining(", "));
    }

    static void libraries(Table t) {
        t.row(
                WARNING,
                "no-nccl",
                f -> f.driver().version().known() && !f.library("nccl").found(),
                f -> "NCCL is not usable: " + f.library("nccl").reason(),
                "install libnccl2 or the wheel nvidia-nccl-cu13, or name its folder in NCCL_HOME");
        t.row(
                WARNING,
                "no-cudart",
                f -> f.driver().version().known() && !f.library("cudart").found(),
                f -> "the CUDA runtime is not usable: " + f.library("cudart").reason(),
                "install CUDA or the wheel nvidia-cuda-runtime, or name its folder in CUDA_HOME");
        t.row(
                WARNING,
                "several-nccl",
                f -> !otherNccl(f).isEmpty(),
                f ->
                        (f.library("nccl").found()
                                        ? "NCCL "
                                                + f.library("nccl").version()
                                                + " is loaded from "
                                                + f.library("nccl").path()
                                                + ", but there are other copies: "
                                        : "several versions of NCCL: ")
                                + otherNccl(f),
                "remove all but one, or name the right one in NCCL_HOME: another part of the program"
                        + " may load the wrong one");
    }

    /** Copies of the same version as the loaded one are harmless. */
    private static String otherNccl(Facts f) {
        Library nccl = f.library("nccl");
        List<Libraries.Copy> copies =
                nccl.otherCopies().orElse(List.of()).stream()
                        .filter(c -> !nccl.found() || !Objects.equals(c.version(), nccl.version()))
                        .toList();
        boolean several =
                nccl.found()
                        ? !copies.isEmpty()
                        : copies.stream().map(Libraries.Copy::version).distinct().count() > 1;
        return !several
                ? ""
                : copies.stream()
                        .map(c ->
                                (c.version() == null ? "unknown version" : c.version())
                                        + " in "
                                        + c.path())
                        .collect(Collectors.joining(", "));
    }

    static void configuration(Table t) {
        t.row(
                WARNING,
                "library-setting",
                f -> !brokenSettings(f).isEmpty(),
                SoftwareChecks::brokenSettings,
                "correct the setting or unset it; it is not ignored, so that no other copy is"
                        + " used instead");
        t.row(
                WARNING,
                "nccl-conf-unreadable",
                f -> !unreadable(f).isEmpty(),
                f -> "NCCL cannot read its settings: " + unreadable(f),
                "correct NCCL_CONF_FILE or the file's permissions; NCCL passes over it silently");
        t.row(
                INFO,
                "nccl-conf",
                f -> !inFiles(f).isEmpty(),
                f -> "NCCL takes settings from files: " + inFiles(f),
                "see that they are meant for this NCCL: a forgotten file can keep it from starting");
        t.row(
                WARNING,
                "nccl-conf-names",
                f -> !spaced(f).isEmpty(),
                f ->
                        "lines without effect in NCCL's files, because of a blank next to '=': "
                                + spaced(f),
                "write NAME=value without blanks");
        t.row(
                WARNING,
                "slow-setting",
                f -> !slow(f).isEmpty(),
                f -> "settings that cost speed: " + slow(f),
                "unset them unless they are meant");
        t.row(
                INFO,
                "nccl-comm-id",
                f -> settings(f).anyMatch(v -> v.name().equals("NCCL_COMM_ID")),
                f -> "NCCL_COMM_ID is set, so all communicators meet at one address, one at a time",
                "unset it; JCCL exchanges the ids itself");
    }

    /** A variable or property that names a library's location, where the library is not. */
    private static String brokenSettings(Facts f) {
        return f.libraries().stream()
                .filter(l -> !l.found())
                .filter(l -> l.attempts().stream().anyMatch(a -> isSetting(a.how())))
                .map(l -> l.title() + ": " + l.reason())
                .collect(Collectors.joining("; "));
    }

    private static boolean isSetting(String how) {
        return how.matches("(system property jccl|environment variable NCCL_HOME).*");
    }

    private static String unreadable(Facts f) {
        return f.configuration().files().stream()
                .filter(c ->
                        c.state().equals(ConfigFile.ABSENT)
                                ? c.origin().equals("NCCL_CONF_FILE")
                                : !c.state().equals(ConfigFile.READ))
                .map(c ->
                        c.state().equals(ConfigFile.ABSENT)
                                ? "NCCL_CONF_FILE names " + c.path() + ", which does not exist"
                                : c.state())
                .collect(Collectors.joining("; "));
    }

    private static String inFiles(Facts f) {
        return f.configuration().files().stream()
                .filter(c -> c.settings().stream().anyMatch(s -> s.overriddenBy() == null))
                .map(c ->
                        c.path()
                                + " ("
                                + c.settings().stream()
                                        .filter(s -> s.overriddenBy() == null)
                                        .map(s -> s.name() + "=" + s.value())
                                        .collect(Collectors.joining(" "))
                                + ")")
                .collect(Collectors.joining(", "));
    }

    private static String spaced(Facts f) {
        return f.configuration().files().stream()
                .flatMap(c -> c.settings().stream())
                .map(Facts.Setting::name)
                .filter(n -> !n.strip().equals(n))
                .map(String::strip)
                .collect(Collectors.joining(" "));
    }

    private static String slow(Facts f) {
        return settings(f)
                .map(v -> v.name() + "=" + v.value().strip())
                .distinct()
                .filter(SLOW::containsKey)
                .map(v -> v + " (" + SLOW.get(v) + ")")
                .collect(Collectors.joining(", "));
    }

    /** The settings that NCCL will use: the environment and what its configuration files add. */
    private static Stream<Variable> settings(Facts f) {
        return Stream.concat(
                f.configuration().variables().stream(),
                f.configuration().files().stream()
                        .flatMap(c -> c.settings().stream())
                        .filter(s -> s.overriddenBy() == null)
                        .map(s -> new Variable(s.name(), s.value())));
    }
}

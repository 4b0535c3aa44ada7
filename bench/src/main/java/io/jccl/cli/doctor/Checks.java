package io.jccl.cli.doctor;

import static io.jccl.cli.doctor.Severity.ERROR;
import static io.jccl.cli.doctor.Severity.INFO;
import static io.jccl.cli.doctor.Severity.WARNING;

import io.jccl.cli.doctor.Facts.Space;
import io.jccl.topology.CpuList;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** The table of all checks of a machine. An unknown value is not a problem. */
final class Checks {
    private static final long MIB = 1 << 20;
    private static final long GIB = 1 << 30;

    /** Less than this is too little even for small jobs; Docker's default is 64 MiB. */
    private static final long LEAST_SHM = 256 * MIB;

    private static final long LEAST_FILES = 4096;

    /**
     * A row.
     *
     * @param severity how much it matters
     * @param id a stable name
     * @param when whether the machine has the problem
     * @param found what was found, with the value
     * @param action what to do
     */
    record Check(
            Severity severity,
            String id,
            Predicate<Facts> when,
            Function<Facts, String> found,
            Function<Facts, String> action) {}

    private static final List<Check> ALL = all();

    private Checks() {}

    /** The most severe first. */
    static List<Problem> problems(Facts facts, List<Requirement.Result> required) {
        Stream<Problem> unmet =
                required.stream()
                        .filter(r -> !r.usable())
                        .map(r ->
                                new Problem(
                                        ERROR,
                                        "required-" + r.name(),
                                        r.name() + " is required: " + r.reason(),
                                        "see Libraries, NVIDIA driver and the problems below"));
        Stream<Problem> rows =
                ALL.stream()
                        .filter(c -> c.when.test(facts))
                        .map(c ->
                                new Problem(
                                        c.severity,
                                        c.id,
                                        c.found.apply(facts),
                                        c.action.apply(facts)));
        return Stream.concat(unmet, rows).sorted(Comparator.comparing(Problem::severity)).toList();
    }

    private static List<Check> all() {
        List<Check> all = new ArrayList<>();
        hostEngine(all::add);
        java(all::add);
        cpu(all::add);
        memory(all::add);
        GpuChecks.driver(all::add);
        GpuChecks.gpus(all::add);
        SoftwareChecks.network(all::add);
        SoftwareChecks.libraries(all::add);
        SoftwareChecks.configuration(all::add);
        return List.copyOf(all);
    }

    /** Collects the rows. */
    interface Table {
        void add(Check check);

        default void row(
                Severity severity,
                String id,
                Predicate<Facts> when,
                Function<Facts, String> found,
                Function<Facts, String> action) {
            add(new Check(severity, id, when, found, action));
        }

        default void row(
                Severity severity,
                String id,
                Predicate<Facts> when,
                Function<Facts, String> found,
                String action) {
            row(severity, id, when, found, f -> action);
        }

        default void row(
                Severity severity,
                String id,
                Predicate<Facts> when,
                Function<Facts, String> found,
                String inContainer,
                String otherwise) {
            Function<Facts, String> action =
                    f -> f.container().detected() ? inContainer : otherwise;
            row(severity, id, when, found, action);
        }
    }

    private static void hostEngine(Table t) {
        t.row(
                ERROR,
                "host-engine-threads",
                f -> !f.hostEngine().threads().works(),
                f -> "the host engine fails with ranks as threads: " + detail(f, true),
                "report it with this report and with what JCCL_DEBUG=1 jccl all_reduce -g 2 prints");
        t.row(
                ERROR,
                "host-engine-processes",
                f -> !f.hostEngine().processes().works(),
                f -> "ranks as processes cannot share memory: " + detail(f, false),
                "make the folder writable and large enough, or name another one in memory in"
                        + " JCCL_SHM_DIR");
        t.row(
                WARNING,
                "shm-on-disk",
                f -> f.hostEngine().space().fits(s -> !s.type().matches("tmpfs|ramfs|hugetlbfs")),
                f ->
                        "ranks as processes share memory in "
                                + Texts.text(f.hostEngine().folder())
                                + ", which is not in memory ("
                                + f.hostEngine().space().map(Space::type).orElse("")
                                + ")",
                "mount a tmpfs on /dev/shm, or name a folder of one in JCCL_SHM_DIR");
    }

    private static String detail(Facts f, boolean threads) {
        return (threads ? f.hostEngine().threads() : f.hostEngine().processes()).detail();
    }

    private static void java(Table t) {
        t.row(
                WARNING,
                "native-access",
                f -> !f.java().nativeAccess(),
                f -> "module io.jccl.bindings is not allowed to call native code",
                "start java with --enable-native-access=io.jccl.bindings (on the class path"
                        + " ALL-UNNAMED)");
        t.row(
                WARNING,
                "vector-api",
                f -> !f.java().vectorApi(),
                f ->
                        "this JDK has no Vector API, so the host engine reduces several times"
                                + " slower",
                "use a JDK with the module jdk.incubator.vector; a program of your own also needs"
                        + " --add-modules jdk.incubator.vector");
        t.row(
                INFO,
                "musl",
                f -> f.os().libc().fits("musl"::equals),
                f -> "the C library is musl, and NVIDIA's libraries need glibc",
                "for GPUs use an image based on Debian, Ubuntu or RHEL");
    }

    private static void cpu(Table t) {
        t.row(
                INFO,
                "one-cpu",
                f -> f.cpu().availableToJava() == 1,
                f -> "Java has one CPU, so ranks take turns",
                "give the process or container more CPUs");
        t.row(
                WARNING,
                "cpu-limit",
                f ->
                        f.cpu()
                                .limit()
                                .fits(l ->
                                        l > 0
                                                && l
                                                        < f.cpu()
                                                                .affinity()
                                                                .map(Checks::cpus)
                                                                .orElse(0)),
                f ->
                        "control groups grant "
                                + Texts.text(f.cpu().limit())
                                + " CPUs' time on "
                                + Texts.text(f.cpu().affinity().map(Checks::cpus))
                                + " CPUs, and a rank that is stopped stops all",
                "run no more ranks and threads than that, or raise the limit (docker --cpus)");
        t.row(
                WARNING,
                "numa-balancing",
                f -> f.cpu().numaBalancing().fits(on -> on) && f.cpu().nodes() > 1 && f.hasNvidia(),
                f ->
                        "the kernel moves pages between "
                                + f.cpu().nodes()
                                + " NUMA nodes (numa_balancing is 1), at the expense of page faults",
                "sysctl kernel.numa_balancing=0");
    }

    private static int cpus(String list) {
        return CpuList.parse(list).cardinality();
    }

    private static void memory(Table t) {
        t.row(
                WARNING,
                "shm-small",
                f -> f.memory().devShm().fits(s -> s.totalBytes() < leastShm(f)),
                f ->
                        "/dev/shm has "
                                + Texts.bytes(f.memory().devShm().map(Space::totalBytes).orElse(0L))
                                + ", little for NCCL and for the buffers of ranks as processes",
                "start the container with --shm-size=1g or --ipc=host (Kubernetes: an emptyDir"
                        + " with medium Memory on /dev/shm)",
                "mount -o remount,size=1g /dev/shm");
        t.row(
                WARNING,
                "shm-full",
                f ->
                        f.memory()
                                .devShm()
                                .fits(s ->
                                        s.totalBytes() >= leastShm(f)
                                                && s.freeBytes() < LEAST_SHM / 4),
                f ->
                        "/dev/shm has only "
                                + Texts.bytes(f.memory().devShm().map(Space::freeBytes).orElse(0L))
                                + " left",
                "delete what dead programs have left there (ls -l /dev/shm)");
        t.row(
                INFO,
                "shm-over-limit",
                f ->
                        f.memory()
                                .limitBytes()
                                .fits(limit ->
                                        limit > 0
                                                && f.memory()
                                                        .devShm()
                                                        .fits(s -> s.totalBytes() > limit)),
                f ->
                        "/dev/shm may grow to "
                                + Texts.bytes(f.memory().devShm().map(Space::totalBytes).orElse(0L))
                                + ", but its memory counts against the control group's "
                                + Texts.bytes(f.memory().limitBytes().orElse(0L)),
                "expect processes to be killed when both are used up; size them together");
        t.row(
                WARNING,
                "memlock",
                f ->
                        f.memory().memlockBytes().fits(l -> l.soft() >= 0)
                                && (!f.network().devices().isEmpty()
                                        || (f.container().detected() && f.hasNvidia())),
                f ->
                        "memory that may be locked is limited to "
                                + f.memory()
                                        .memlockBytes()
                                        .map(l -> Texts.bytes(l.soft()))
                                        .orElse("")
                                + ", and network cards need theirs locked",
                "start the container with --ulimit memlock=-1",
                "ulimit -l unlimited (in /etc/security/limits.d: * - memlock unlimited)");
        t.row(
                WARNING,
                "open-files",
                f ->
                        f.memory().openFiles().fits(l -> l.soft() >= 0 && l.soft() < LEAST_FILES)
                                && f.hasNvidia(),
                f ->
                        "only "
                                + f.memory().openFiles().map(l -> Texts.limit(l.soft())).orElse("")
                                + " files may be open, and NCCL opens many",
                "start the container with --ulimit nofile=131072",
                "ulimit -n 131072 (in /etc/security/limits.d: * - nofile 131072)");
        t.row(
                WARNING,
                "stack-unlimited",
                f -> f.memory().stackBytes().fits(l -> l.soft() < 0) && f.hasNvidia(),
                f ->
                        "the stack limit is unlimited, which makes glibc give threads only 2 MiB,"
                                + " too little for NCCL before 2.28",
                "ulimit -s 8192");
        t.row(
                INFO,
                "remove-ipc",
                f ->
                        f.container().removeIpc().fits(v -> v.matches("yes|true|1|on|not set"))
                                && f.hasNvidia(),
                f ->
                        "systemd may delete a user's files in /dev/shm when the user logs out"
                                + " (RemoveIPC is "
                                + Texts.text(f.container().removeIpc())
                                + ")",
                "for jobs that outlive the login set RemoveIPC=no in /etc/systemd/logind.conf and"
                        + " restart systemd-logind");
    }

    private static long leastShm(Facts f) {
        return f.manyGpus() ? GIB : LEAST_SHM;
    }
}

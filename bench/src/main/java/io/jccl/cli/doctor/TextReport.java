package io.jccl.cli.doctor;

import static io.jccl.cli.shell.Text.format;

import io.jccl.bindings.Discovery;
import io.jccl.cli.doctor.Facts.ConfigFile;
import io.jccl.cli.doctor.Facts.Cpu;
import io.jccl.cli.doctor.Facts.Driver;
import io.jccl.cli.doctor.Facts.Gpu;
import io.jccl.cli.doctor.Facts.Library;
import io.jccl.cli.doctor.Facts.Limit;
import io.jccl.cli.doctor.Facts.Memory;
import io.jccl.cli.doctor.Facts.Nic;
import io.jccl.cli.doctor.Facts.Setting;
import io.jccl.cli.doctor.Facts.Space;
import io.jccl.cli.doctor.Facts.Variable;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Text;
import io.jccl.cli.shell.Verdict;
import io.jccl.ras.RasReport;
import java.util.List;
import java.util.function.LongFunction;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** The report as text: sections of labelled lines. */
final class TextReport {
    private static final int LABEL = 18;

    private final StringBuilder out = new StringBuilder();

    TextReport(Report report) {
        Facts f = report.facts();
        out.append("jccl doctor ").append(report.version()).append('\n');
        hostEngine(f.hostEngine());
        system(f);
        cpu(f.cpu());
        memory(f.memory());
        driver(f.driver());
        gpus(f);
        network(f.network());
        libraries(f.libraries());
        configuration(f.configuration());
        container(f.container());
        ras(report.ras());
        required(report.required());
        problems(report.problems());
    }

    @Override
    public String toString() {
        return out.toString();
    }

    private void section(String title) {
        out.append('\n').append(title).append('\n');
    }

    private void line(String label, String value) {
        String shown = Output.oneLine(label);
        out.append("  ").append(shown);
        out.append(" ".repeat(Math.max(LABEL - shown.length(), 0))).append("  ");
        out.append(Output.oneLine(value)).append('\n');
    }

    private void line(String label, Reading<?> value) {
        line(label, Texts.text(value));
    }

    private void more(String value) {
        line("", value);
    }

    private void hostEngine(Facts.HostEngine h) {
        section("Host engine");
        line("threads", step(h.threads()));
        line("processes", step(h.processes()));
        line(
                "shared folder",
                h.folder().map(f -> f + ": " + Texts.text(h.space().map(TextReport::space))));
    }

    private static String step(Facts.Step step) {
        return (step.works() ? "works: " : "FAILS: ") + step.detail();
    }

    private static String space(Space s) {
        return format(
                "%s, %s free (%s)",
                Texts.bytes(s.totalBytes()), Texts.bytes(s.freeBytes()), s.type());
    }

    private void system(Facts f) {
        section("System");
        line(
                "OS",
                f.os().name() + " " + Texts.text(f.os().kernel()) + ", " + f.os().architecture());
        line("distribution", f.os().distribution());
        line("C library", f.os().libc());
        line("Java", f.java().version() + ", " + f.java().vm() + ", " + f.java().vendor());
        line("Java home", f.java().home());
        line("native access", f.java().nativeAccess() ? "allowed" : "not allowed");
        line("Vector API", f.java().vectorApi() ? "present" : "absent");
    }

    private void cpu(Cpu c) {
        section("CPU");
        line("model", c.model());
        line("sockets", c.sockets());
        line("cores", c.cores());
        line("threads", c.threads());
        line("usable", c.availableToJava() + " by Java, affinity " + Texts.text(c.affinity()));
        line("time limit", c.limit().map(l -> l < 0 ? "none" : l + " CPUs"));
        line("virtual machine", yes(c.virtualMachine()));
        switch (c.numaNodes()) {
            case Reading.Known<List<Facts.NumaNode>>(var nodes) ->
                    nodes.forEach(n ->
                            line(
                                    "NUMA node " + n.node(),
                                    format(
                                            "CPUs %s, %s, %s free",
                                            Texts.text(n.cpus()),
                                            Texts.text(n.totalBytes().map(Texts::bytes)),
                                            Texts.text(n.freeBytes().map(Texts::bytes)))));
            case Reading.Unknown<List<Facts.NumaNode>> u -> line("NUMA nodes", u);
        }
        line("NUMA balancing", c.numaBalancing().map(on -> on ? "on" : "off"));
        line("huge pages", c.transparentHugePages());
        line("  shared memory", c.sharedMemoryHugePages());
    }

    private static Reading<String> yes(Reading<Boolean> reading) {
        return reading.map(b -> b ? "yes" : "no");
    }

    private void memory(Memory m) {
        section("Memory");
        line("total", m.totalBytes().map(Texts::bytes));
        line("available", m.availableBytes().map(Texts::bytes));
        line("control group", m.limitBytes().map(Texts::bytes));
        line("/dev/shm", m.devShm().map(TextReport::space));
        line("locked (memlock)", limit(m.memlockBytes(), Texts::bytes));
        line("open files", limit(m.openFiles(), Texts::limit));
        line("stack", limit(m.stackBytes(), Texts::bytes));
    }

    private static Reading<String> limit(Reading<Limit> limit, LongFunction<String> text) {
        return limit.map(l -> text.apply(l.soft()) + " soft, " + text.apply(l.hard()) + " hard");
    }

    private void driver(Driver d) {
        section("NVIDIA driver");
        line(
                "kernel module",
                d.version().map(v -> v + (d.openModule() ? " (open)" : " (proprietary)")));
        line("libcuda", d.libcuda());
        line("  version", d.libcudaVersion());
        line(
                "CUDA",
                d.cuda()
                        .map(c ->
                                format(
                                        "driver serves CUDA %s, %s",
                                        c.driverVersion(), Text.count(c.devices().size(), "GPU"))));
        d.cuda()
                .map(Facts.Cuda::devices)
                .orElse(List.of())
                .forEach(g -> line("  device " + g.index(), g.name() + ", " + g.pci()));
        line(
                "device files",
                d.deviceNodes().isEmpty()
                        ? "none (/dev/nvidia*)"
                        : d.deviceNodes().stream()
                                .map(TextReport::node)
                                .collect(Collectors.joining(" ")));
        line("nvidia_peermem", d.peerMemory() ? "loaded" : "not loaded");
        if (d.wsl()) {
            line("/dev/dxg", "present: Windows drives the GPUs (WSL)");
        }
    }

    private static String node(Facts.DeviceNode n) {
        boolean usable = n.readable() && n.writable();
        return n.path() + (usable ? "" : n.readable() ? " (read only)" : " (not allowed)");
    }

    private void gpus(Facts f) {
        section("GPUs");
        if (f.gpus().isEmpty()) {
            line("none", "no NVIDIA GPU on the PCI bus");
        }
        for (Gpu g : f.gpus()) {
            line(g.pci(), Texts.text(g.model().or(g.device())) + ", " + Texts.text(g.uuid()));
            more("NUMA node " + Texts.text(g.numaNode()) + ", driver " + Texts.text(g.driver()));
            more(
                    "link "
                            + Texts.text(
                                    g.link()
                                            .map(l ->
                                                    format(
                                                            "%s x%s, at most %s x%s",
                                                            l.speed(),
                                                            l.width(),
                                                            l.maxSpeed(),
                                                            l.maxWidth()))));
            more(
                    "IOMMU group "
                            + Texts.text(g.iommuGroup())
                            + ", translation "
                            + Texts.text(g.iommu())
                            + ", ACS redirect "
                            + Texts.text(
                                    g.redirecting()
                                            .map(b -> b.isEmpty() ? "none" : String.join(" ", b))));
        }
    }

    private void network(Facts.Network n) {
        section("InfiniBand and RoCE");
        if (n.devices().isEmpty()) {
            line("none", "no device in /sys/class/infiniband");
        }
        for (Nic nic : n.devices()) {
            line(nic.name(), Texts.text(nic.pci()) + ", NUMA node " + Texts.text(nic.numaNode()));
            nic.ports()
                    .forEach(p ->
                            more(
                                    format(
                                            "port %s: %s, %s, %s",
                                            p.number(),
                                            Texts.text(p.linkLayer()),
                                            Texts.text(p.state()),
                                            Texts.text(p.rate()))));
        }
        if (!n.devices().isEmpty() || !n.verbs().isEmpty()) {
            line("verbs", n.verbs().isEmpty() ? "none" : String.join(" ", n.verbs()));
        }
    }

    private void libraries(List<Library> libraries) {
        section("Libraries");
        for (Library l : libraries) {
            line(
                    l.title(),
                    l.found()
                            ? l.version() + " from " + l.path() + " (" + l.how() + ")"
                            : "not usable: " + l.reason());
            if (!l.found()) {
                l.attempts().forEach(a -> more(attempt(a)));
            }
            switch (l.otherCopies()) {
                case Reading.Known<List<Libraries.Copy>>(var copies) ->
                        copies.forEach(c ->
                                more(
                                        "other copy: "
                                                + c.path()
                                                + (c.version() == null
                                                        ? ""
                                                        : ", version " + c.version())));
                case Reading.Unknown<List<Libraries.Copy>> u ->
                        more("other copies: " + Texts.text(u));
            }
        }
    }

    private static String attempt(Discovery.Attempt a) {
        return a.how() + ", " + a.path() + ": " + a.outcome();
    }

    private void configuration(Facts.Configuration c) {
        section("Configuration");
        for (ConfigFile file : c.files()) {
            line("NCCL's file", file.path() + " (" + file.origin() + "): " + file.state());
            file.settings().forEach(s -> more(setting(s)));
        }
        variables("variables", c.variables());
        variables("JVM properties", c.properties());
    }

    private static String setting(Setting s) {
        return s.name()
                + "="
                + s.value()
                + (s.overriddenBy() == null
                        ? ""
                        : "  (not in force: set by " + s.overriddenBy() + ")");
    }

    private void variables(String label, List<Variable> variables) {
        if (variables.isEmpty()) {
            line(label, "none that matter");
        }
        for (int i = 0; i < variables.size(); i++) {
            Variable v = variables.get(i);
            line(i == 0 ? label : "", v.name() + "=" + v.value());
        }
    }

    private void container(Facts.Container c) {
        section("Container");
        line("container", c.detected() ? "yes: " + String.join("; ", c.signs()) : "no");
        line("control groups", c.cgroups());
        line("seccomp", c.seccomp());
        line("CAP_SYS_NICE", yes(c.sysNice()));
        line("ptrace_scope", c.ptraceScope());
        line("RemoveIPC", c.removeIpc());
    }

    private void ras(@Nullable RasReport ras) {
        if (ras == null) {
            return;
        }
        section("NCCL's RAS");
        line("NCCL", ras.version() + (ras.whole() ? "" : ", the answer is not complete"));
        for (RasReport.Group g : ras.groups()) {
            line(
                    g.id(),
                    format(
                            "%4d x %5d ranks, %5d gave data  %-8s  %s",
                            g.communicators(), g.size(), g.ranks(), g.status(), g.errors()));
        }
    }

    private void required(List<Requirement.Result> required) {
        if (required.isEmpty()) {
            return;
        }
        section("Required");
        required.forEach(
                r -> line(r.name(), (r.usable() ? "usable: " : "NOT USABLE: ") + r.reason()));
    }

    private static String painted(Severity severity) {
        String text = String.format("%-8s", severity);
        return switch (severity) {
            case ERROR -> Verdict.bad(text);
            case WARNING -> Verdict.doubtful(text);
            case INFO -> text;
        };
    }

    private void problems(List<Problem> problems) {
        section("Problems");
        if (problems.isEmpty()) {
            out.append("  ").append(Verdict.good("No problems found")).append('\n');
        }
        problems.forEach(p ->
                out.append(
                        String.format(
                                "  %s %s. To do: %s [%s]%n",
                                painted(p.severity()),
                                Output.oneLine(p.found()),
                                Output.oneLine(p.action()),
                                p.id())));
    }
}

package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;

import io.jccl.topology.Gpu;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Operation;
import io.jccl.topology.PathCode;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.cost.Tuning;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;

/**
 * Measurements next to predictions, and possible causes of deviations.
 *
 * @param sizes by size
 * @param causes of what is slow, the likeliest first; none if nothing is
 */
record Verdict(List<Size> sizes, List<Cause> causes) {
    /** What a measurement is, compared to the prediction and its spread. */
    enum Is {
        AS_EXPECTED,
        SLOW,
        FAST
    }

    /**
     * A size.
     *
     * @param measured what was measured
     * @param predicted what was expected
     * @param is the verdict
     */
    record Size(MeasuredLog.Line measured, Prediction predicted, Is is) {
        /** Of the bandwidths, from the times: a log has 0.00 GB/s for small sizes. */
        double ratio() {
            return predicted.timeUs() / measured.timeUs();
        }
    }

    /**
     * Something that makes a machine slow.
     *
     * @param what it is
     * @param busbwGBps bandwidth that it would leave; 0 if unknown
     * @param check how to find out
     */
    record Cause(String what, double busbwGBps, String check) {}

    /** From here on bandwidth decides. */
    private static final long LARGE = 16 << 20;

    /**
     * Compares.
     *
     * @param log what was measured
     * @param tuning what predicts
     * @param gpus ids of those that take part
     * @param machines how many
     * @throws IllegalArgumentException if the log is of something else
     */
    static Verdict of(
            String name,
            MeasuredLog log,
            Tuning tuning,
            Topology t,
            List<Integer> gpus,
            Operation op,
            int machines) {
        String command = log.command();
        if (command != null && !command.equals(op.command())) {
            throw new IllegalArgumentException(
                    format(
                            "--measured %s is of %s, and the prediction of %s: give --op %s",
                            name, command, op.command(), command));
        }
        int ranks = gpus.size() * machines;
        if (log.ranks() > 0 && log.ranks() != ranks) {
            throw new IllegalArgumentException(
                    format(
                            "--measured %s is of %s ranks, and the prediction of %s: give the"
                                    + " machines (--nodes) and GPUs (--gpus) of the measurement",
                            name, log.ranks(), ranks));
        }
        List<Size> sizes = new ArrayList<>();
        for (MeasuredLog.Line line : log.lines()) {
            Prediction p = tuning.choose(line.bytes());
            double ratio = line.timeUs() / p.timeUs();
            Is is =
                    ratio > 1 + p.spread()
                            ? Is.SLOW
                            : ratio < 1 - p.spread() ? Is.FAST : Is.AS_EXPECTED;
            sizes.add(new Size(line, p, is));
        }
        Size worst = null;
        for (Size s : sizes) {
            if (s.is == Is.SLOW && (worst == null || s.measured.bytes() > worst.measured.bytes())) {
                worst = s;
            }
        }
        return new Verdict(
                sizes, worst == null ? List.of() : causes(worst, tuning, t, gpus, machines));
    }

    private static List<Cause> causes(
            Size slow, Tuning tuning, Topology t, List<Integer> gpus, int machines) {
        List<Cause> all = new ArrayList<>();
        double expected = slow.predicted.busbwGBps();
        boolean large = slow.measured.bytes() >= LARGE;
        boolean nvlink = true;
        boolean shared = false; // a PCIe switch joins a pair without NVLink
        for (int a : gpus) {
            for (int b : gpus) {
                PathCode.Kind kind = t.code(a, b).kind();
                nvlink &= a == b || kind == PathCode.Kind.NV;
                shared |= a < b && (kind == PathCode.Kind.PIX || kind == PathCode.Kind.PXB);
            }
        }
        if (shared) {
            all.add(
                    new Cause(
                            "ACS is on: traffic below one PCIe switch goes through the CPU",
                            large ? expected / 2 : 0,
                            "sudo lspci -vvv | grep ACSCtl: SrcValid+ anywhere means on"));
        }
        int sm = Integer.MAX_VALUE;
        for (int gpu : gpus) {
            Gpu g = t.gpus().get(gpu);
            sm = Math.min(sm, g.sm());
        }
        if (machines == 1) {
            all.add(
                    new Cause(
                            "P2P is off: data goes through host memory",
                            // Up and down over each GPU's slot.
                            large ? Math.min(expected, LinkModel.pcieOf(sm) / 2) : 0,
                            "nvidia-smi topo -p2p r shows other than OK, NCCL_P2P_DISABLE is set, or"
                                    + " a log with NCCL_DEBUG=INFO has 'via SHM'"));
        } else if (t.nics().size() > 1) {
            int nics = t.nics().size();
            all.add(
                    new Cause(
                            "one of " + nics + " NICs is missing",
                            large ? expected * (nics - 1) / nics : 0,
                            "ibstat: State is Active and Rate is equal for all; a log with"
                                    + " NCCL_DEBUG=INFO lists them after 'NET/IB : Using'"));
        }
        Algorithm chosen = slow.predicted.algorithm();
        EnumSet<Algorithm> left =
                EnumSet.complementOf(EnumSet.of(Algorithm.NVLS, Algorithm.NVLS_TREE));
        if (!left.contains(chosen)
                && tuning.ways().stream().anyMatch(w -> left.contains(w.algorithm()))) {
            double without =
                    tuning.only(left, EnumSet.allOf(Protocol.class))
                            .choose(slow.measured.bytes())
                            .busbwGBps();
            all.add(
                    new Cause(
                            "NVLS is off: the switches do not reduce",
                            without,
                            "NCCL_NVLS_ENABLE=0 is set, or nvidia-smi -q has a Fabric state other"
                                    + " than Completed"));
        }
        // Those that explain the figure best first; then those of which no figure is known.
        double measured = slow.measured.busbwGBps();
        all.sort(
                Comparator.comparingDouble((Cause c) ->
                        c.busbwGBps == 0
                                ? Double.MAX_VALUE
                                : Math.abs(Math.log(measured / c.busbwGBps))));
        all.add(
                new Cause(
                        "processes are bound to the wrong NUMA node",
                        0,
                        "numactl --show in a process, against CPU Affinity of nvidia-smi topo -m"));
        if (!nvlink || machines > 1) {
            all.add(
                    new Cause(
                            "the IOMMU translates transfers between devices",
                            0,
                            "/proc/cmdline has none of iommu=pt, iommu.passthrough=1 (ARM) and"
                                    + " iommu=off; a log with"
                                    + " NCCL_DEBUG=INFO has 'GDR 0'"));
        }
        return all;
    }
}

package io.jccl.cli.topo;

import io.jccl.topology.Nic;
import io.jccl.topology.PathCode;
import io.jccl.topology.Processor;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Tuning;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * An environment variable of NCCL that is worth setting, or unsetting, on a machine.
 *
 * @param line what to paste: {@code export NAME=value} or {@code unset NAME}
 * @param why the reason
 */
record EnvAdvice(String line, String why) {
    /** What costs bandwidth wherever it is set. */
    private static final Map<String, String> HARMFUL =
            new TreeMap<>(
                    Map.of(
                            "NCCL_P2P_DISABLE",
                            "turns off transfers from GPU to GPU",
                            "NCCL_SHM_DISABLE",
                            "sends through the network what shared memory carries",
                            "NCCL_IB_DISABLE",
                            "sends through sockets what InfiniBand or RoCE carries",
                            "NCCL_NVLS_ENABLE",
                            "0 turns off reduction in the NVSwitches; NCCL turns it on by itself",
                            "NCCL_ALGO",
                            "one algorithm for all sizes: small or large ones get slower",
                            "NCCL_PROTO",
                            "one protocol for all sizes, and LL128 forced on a machine without its"
                                    + " guarantee corrupts data",
                            "NCCL_MAX_NCHANNELS",
                            "fewer channels than NCCL plans leave links idle",
                            "NCCL_NET_GDR_LEVEL",
                            "may keep NICs from reading GPU memory"));

    /**
     * Advice for a machine.
     *
     * @param gpus ids of those that take part
     * @param machines how many machines
     * @param tuning predictions; null if there are none
     * @param environment of this process if the machine is this one; null for a file
     */
    static List<EnvAdvice> of(
            Topology t,
            List<Integer> gpus,
            int machines,
            @Nullable Tuning tuning,
            @Nullable Map<String, String> environment) {
        List<EnvAdvice> all = new ArrayList<>();
        p2p(t, gpus, all);
        nics(t, gpus, machines, all);
        boolean nvls =
                tuning != null
                        && tuning.bounds().stream()
                                .anyMatch(b ->
                                        b.algorithm() == Algorithm.NVLS
                                                || b.algorithm() == Algorithm.NVLS_TREE);
        HARMFUL.forEach((name, why) -> {
            String value = environment == null ? null : environment.get(name);
            boolean concerns =
                    switch (name) {
                        case "NCCL_NVLS_ENABLE" -> nvls;
                        case "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL" -> machines > 1;
                        default -> true;
                    };
            if (environment == null ? concerns : value != null && costs(name, value)) {
                all.add(
                        new EnvAdvice(
                                "unset " + name,
                                (value == null ? "" : "is " + value + ": ") + why));
            }
        });
        return all;
    }

    /** Whether a value costs bandwidth: NCCL takes an empty one for unset. */
    private static boolean costs(String name, String value) {
        return !value.isEmpty()
                && (name.equals("NCCL_NVLS_ENABLE")
                        ? value.equals("0")
                        : !(name.endsWith("_DISABLE") && value.equals("0")));
    }

    /**
     * NCCL uses P2P up to paths through PCIe switches, and through CPUs only for two GPUs on AMD
     * (2.30, src/graph/paths.cc, ncclTopoCheckP2p).
     */
    private static void p2p(Topology t, List<Integer> gpus, List<EnvAdvice> all) {
        boolean far = false;
        boolean nvlink = false;
        for (int a : gpus) {
            for (int b : gpus) {
                PathCode.Kind kind = t.code(a, b).kind();
                far |=
                        kind == PathCode.Kind.PHB
                                || kind == PathCode.Kind.NODE
                                || kind == PathCode.Kind.SYS;
                nvlink |= kind == PathCode.Kind.NV;
            }
        }
        boolean amd = false;
        for (Switch sw : t.switches()) {
            Processor cpu = t.processor(sw.id());
            amd |= cpu != null && cpu.vendor().equals("AuthenticAMD");
        }
        if (far && !nvlink && !(amd && gpus.size() <= 2)) {
            all.add(
                    new EnvAdvice(
                            "export NCCL_P2P_LEVEL=SYS",
                            "GPUs reach each other through CPUs only, where NCCL copies through host"
                                    + " memory by default; worth a try if nvidia-smi topo -p2p r"
                                    + " shows OK for all pairs"));
        }
    }

    /** NICs that are as near to a GPU as any, if there are others. */
    private static void nics(Topology t, List<Integer> gpus, int machines, List<EnvAdvice> all) {
        if (machines == 1 || t.nics().isEmpty()) {
            return;
        }
        List<String> order = List.of("PIX", "PXB", "PHB", "NODE", "SYS");
        List<String> near = new ArrayList<>();
        for (Nic nic : t.nics()) {
            for (int gpu : gpus) {
                int distance = order.indexOf(t.code(gpu, nic.id()).text());
                boolean nearest = distance >= 0;
                for (Nic other : t.nics()) {
                    int d = order.indexOf(t.code(gpu, other.id()).text());
                    nearest &= d < 0 || d >= distance;
                }
                if (nearest) {
                    String device = nic.device();
                    near.add(device == null ? nic.name() : device);
                    break;
                }
            }
        }
        boolean known = near.stream().noneMatch(n -> n.matches("NIC\\d+"));
        if (known && !near.isEmpty() && near.size() < t.nics().size()) {
            all.add(
                    new EnvAdvice(
                            "export NCCL_IB_HCA==" + String.join(",", near),
                            "the other "
                                    + (t.nics().size() - near.size())
                                    + " of "
                                    + t.nics().size()
                                    + " NICs are nearest to no GPU, such as those for storage; the"
                                    + " second = asks for exactly these names"));
        }
    }
}

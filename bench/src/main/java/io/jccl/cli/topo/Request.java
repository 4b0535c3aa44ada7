package io.jccl.cli.topo;

import io.jccl.topology.Operation;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.plan.Network;
import io.jccl.topology.read.Format;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What {@code jccl topo} was asked.
 *
 * @param format format of the text
 * @param lenient whether damaged input is accepted
 * @param gpuModel model of the GPUs, if given
 * @param nvlinkGbps GB/s of an NVLink, 0 if not given
 * @param nicGbps GB/s of a NIC, 0 if not given
 * @param nvlinkStatus file with the output of nvidia-smi nvlink -s, if given
 * @param gpus list of GPUs, as typed; null for all
 * @param operation operation to plan
 * @param root number of a GPU; null for the first
 * @param sizes to predict
 * @param sizesGiven whether the sizes were requested explicitly
 * @param machines number of machines
 * @param network what joins them
 * @param algorithms algorithms to predict
 * @param protocols protocols to predict
 * @param best how many GPUs to choose; null for all
 * @param measured log to compare with, if given
 * @param advise whether to advise on NCCL's environment
 * @param environment of this process, if the machine is this one
 * @param simulate whether to simulate the plan
 */
record Request(
        Format format,
        boolean lenient,
        @Nullable String gpuModel,
        double nvlinkGbps,
        double nicGbps,
        @Nullable Path nvlinkStatus,
        @Nullable String gpus,
        Operation operation,
        @Nullable Integer root,
        List<Long> sizes,
        boolean sizesGiven,
        int machines,
        Network network,
        Set<Algorithm> algorithms,
        Set<Protocol> protocols,
        @Nullable Integer best,
        @Nullable Path measured,
        boolean advise,
        @Nullable Map<String, String> environment,
        boolean simulate) {}

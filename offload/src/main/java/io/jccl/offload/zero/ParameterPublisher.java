package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.offload.Tier;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The way of updated parameters to where they live: of this rank's own, from the stage if the CPU
 * cannot write there, and at stages 1 and 2 of every rank's to all.
 */
final class ParameterPublisher {
    private final ZeroConfig config;
    private final Communicator comm;
    private final TransferEngine engine;
    private final Ranks ranks;
    private final GatherWindows windows;

    ParameterPublisher(
            ZeroConfig config,
            Ranks ranks,
            List<Part> parts,
            GatherWindows windows,
            Memory memory) {
        this.config = config;
        this.comm = config.comm();
        this.engine = config.tiers().engine();
        this.ranks = ranks;
        this.windows = windows;
        Tier tier = config.options().parameters();
        if (tier == Tier.NVME || (!config.onHost() && tier == Tier.DEVICE)) {
            long most = 0;
            for (Part p : parts) {
                most = Math.max(most, p.parameters.count);
            }
            Buffer stage = memory.buffer(Tier.PINNED, config.options().type(), most);
            parts.forEach(p -> p.stageParameters(stage));
        }
    }

    /**
     * From the stage to where parameters live. At stages 1 and 2 a store gets them whole, later.
     */
    void store(Part p) {
        Buffer staged = p.ownParameterStage;
        if (staged == null) {
            return;
        }
        if (!p.parameters.inStore()) {
            engine.toDevice(staged, Objects.requireNonNull(p.ownParameters), 0).await(FOREVER);
        } else if (!config.spreads()) {
            p.parameters.write(Objects.requireNonNull(p.parameterStage)).await(FOREVER);
        }
    }

    /**
     * Gives all ranks a layer's updated parameters, at stages 1 and 2.
     *
     * @return this rank's error; it takes part in the collective all the same
     */
    @Nullable RuntimeException publish(Part p, @Nullable RuntimeException earlier) {
        if (!config.spreads()) {
            return earlier;
        }
        if (config.resident()) {
            comm.allGather(Objects.requireNonNull(p.allParameters), ranks.stream);
            ranks.mark();
            return earlier;
        }
        RuntimeException failure = earlier;
        GatherWindows.Window w = windows.any();
        Buffer all = w.all.get(p.index);
        Buffer from =
                p.ownParameterStage != null
                        ? p.ownParameterStage
                        : Objects.requireNonNull(p.ownParameters);
        Transfer in = engine.toDevice(from, w.own.get(p.index), 0, w.freed);
        in.before(ranks.stream);
        comm.allGather(all, ranks.stream);
        ranks.await(ranks.mark(w.ready), w.ready);
        try {
            in.await(FOREVER); // the collective runs also if this fails
            Buffer to =
                    p.parameterStage != null
                            ? p.parameterStage
                            : Objects.requireNonNull(p.allParameters);
            engine.toHost(all, to, 0).await(FOREVER);
            if (p.parameters.inStore() && failure == null) {
                p.parameters.write(to).await(FOREVER);
            }
        } catch (RuntimeException e) {
            failure = failure == null ? e : failure;
        }
        return failure;
    }
}

package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.offload.Tier;
import io.jccl.offload.Transfer;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The way of updated parameters to where they live: of this rank's own, from a stage if the CPU
 * cannot write there, and at stages 1 and 2 of every rank's to all. A GPU's are copied while the
 * CPU updates the next layer.
 */
final class ParameterPublisher {
    private final ZeroConfig config;
    private final Communicator comm;
    private final Copies copies;
    private final Ranks ranks;
    private final GatherWindows windows;

    /** What is on its way to a GPU from each stage. */
    private final @Nullable Transfer[] leaving = new Transfer[2];

    ParameterPublisher(
            ZeroConfig config,
            Ranks ranks,
            List<Part> parts,
            GatherWindows windows,
            Memory memory) {
        this.config = config;
        this.comm = config.comm();
        this.copies = new Copies(config.tiers().engine());
        this.ranks = ranks;
        this.windows = windows;
        Tier tier = config.options().parameters();
        boolean toGpu = !config.onHost() && tier == Tier.DEVICE && !config.updatesOnDevice();
        if (tier == Tier.NVME || toGpu) {
            long most = Part.most(parts, p -> p.parameters.count);
            Buffer first = memory.buffer(Tier.PINNED, config.options().type(), most);
            Buffer second =
                    toGpu ? memory.buffer(Tier.PINNED, config.options().type(), most) : first;
            parts.forEach(p -> p.stageParameters(p.index % 2 == 0 ? first : second));
        }
    }

    /** Waits until a part's stage can be written. */
    void prepare(Part p) {
        Transfer t = leaving[p.index % 2];
        leaving[p.index % 2] = null;
        if (t != null) {
            t.await(FOREVER);
        }
    }

    /** Waits for what is on its way, also after an error; returns the first error. */
    @Nullable RuntimeException settle(@Nullable RuntimeException earlier) {
        RuntimeException failure = earlier;
        for (int i = 0; i < leaving.length; i++) {
            Transfer t = leaving[i];
            leaving[i] = null;
            try {
                if (t != null) {
                    t.await(FOREVER);
                }
            } catch (RuntimeException e) {
                failure = failure == null ? e : failure;
            }
        }
        return failure;
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
            leaving[p.index % 2] =
                    copies.toDevice(staged, Objects.requireNonNull(p.ownParameters), null);
        } else if (!config.spreads()) {
            TieredTensor.finish(p.parameters.write(Objects.requireNonNull(p.parameterStage)));
        }
    }

    /**
     * Sends a layer's updated parameters to all ranks, at stages 1 and 2.
     *
     * @return this rank's error; it takes part in the collective anyway
     */
    @Nullable RuntimeException publish(Part p, @Nullable RuntimeException earlier) {
        if (!config.spreads()) {
            return earlier;
        }
        if (config.resident()) {
            Transfer own = leaving[p.index % 2];
            if (own != null) {
                own.before(ranks.stream);
            }
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
        Transfer in = copies.toDevice(from, w.own.get(p.index), w.freed);
        in.before(ranks.stream);
        comm.allGather(all, ranks.stream);
        ranks.await(ranks.mark(w.ready), w.ready);
        try {
            in.await(FOREVER); // the collective runs also if this fails
            Buffer to =
                    p.parameterStage != null
                            ? p.parameterStage
                            : Objects.requireNonNull(p.allParameters);
            copies.toHost(all, to).await(FOREVER);
            if (p.parameters.inStore() && failure == null) {
                TieredTensor.finish(p.parameters.write(to));
            }
        } catch (RuntimeException e) {
            failure = failure == null ? e : failure;
        }
        return failure;
    }
}

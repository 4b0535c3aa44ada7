package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.Tier;
import io.jccl.offload.Transfer;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Gradients that are added up in the memory of a GPU: kernels add them and take their norm, in the
 * order of the stream of collectives. If the CPU updates, they come to pinned memory one layer
 * ahead of it.
 */
final class DeviceSums {
    /** Elements that are widened at a time. */
    private static final long PIECE = 1 << 20;

    /** One is read by the CPU while the next layer's gradients arrive in the other. */
    private static final int STAGES = 2;

    private final Compute compute;
    private final Stream stream;
    private final Copies copies;
    private final Part[] parts;

    /** Narrow gradients, widened to a float32 accumulator's type. */
    private final @Nullable Buffer wide;

    private final Buffer norm;
    private final Buffer sum;

    /** Where the CPU reads the sum. */
    private final Buffer answer;

    /** For each part, where the CPU reads its gradients; empty if it does not update. */
    private final List<Buffer> staged = new ArrayList<>();

    private final @Nullable Transfer[] coming = new Transfer[STAGES];

    DeviceSums(ZeroConfig config, Compute compute, Ranks ranks, List<Part> parts, Memory memory) {
        this.compute = compute;
        this.stream = ranks.stream;
        this.copies = new Copies(config.tiers().engine());
        this.parts = parts.toArray(Part[]::new);
        ZeroOptions options = config.options();
        this.wide =
                options.accumulator() == options.type()
                        ? null
                        : memory.buffer(
                                Tier.DEVICE,
                                DataType.FLOAT32,
                                Math.min(PIECE, Part.mostPadded(parts)));
        this.norm = memory.buffer(Tier.DEVICE, DataType.FLOAT64, Compute.NORM_COUNT);
        this.sum = norm.slice(0, 1);
        this.answer = memory.own(Device.host().allocate(DataType.FLOAT64, 1));
        if (!config.updatesOnDevice()) {
            long most = Part.most(parts, p -> p.updated);
            List<Buffer> stages = new ArrayList<>();
            for (int i = 0; i < STAGES; i++) {
                stages.add(memory.buffer(Tier.PINNED, options.accumulator(), most));
            }
            for (Part p : parts) {
                staged.add(stages.get(p.index % STAGES).slice(0, p.updated));
            }
        }
    }

    /** Enqueues {@code sums += from}, or {@code sums = from} for the first micro-step. */
    void add(Buffer from, Buffer sums, boolean first) {
        if (first) {
            compute.cast(from, sums, stream);
            return;
        }
        if (from.dataType() == sums.dataType()) {
            compute.add(from, sums, sums, stream);
            return;
        }
        Buffer room = Objects.requireNonNull(wide);
        for (long at = 0; at < from.count(); at += room.count()) {
            long n = Math.min(room.count(), from.count() - at);
            Buffer piece = room.slice(0, n);
            Buffer target = sums.slice(at, n);
            compute.cast(from.slice(at, n), piece, stream);
            compute.add(piece, target, target, stream);
        }
    }

    /** Where {@link #enqueueSquares} puts the sum: one float64 on the device. */
    Buffer sum() {
        return sum;
    }

    /** Enqueues the sum of squares of this rank's gradients. */
    void enqueueSquares(boolean counted) {
        boolean add = false;
        for (Part p : parts) {
            List<Buffer> some = counted ? p.countedGradients() : p.ownGradients();
            for (int i = 0; i < some.size(); i++) {
                compute.sumOfSquares(some.get(i), norm, add, stream);
                add = true;
            }
        }
    }

    /** The sum of squares of this rank's gradients; waits for it. */
    double squares(boolean counted) {
        enqueueSquares(counted);
        stream.copy(sum, answer);
        stream.synchronize();
        return answer.get(0);
    }

    /** Lets the first part's gradients come. */
    void begin() {
        start(parts[0]);
    }

    private void start(Part p) {
        coming[p.index % STAGES] = copies.toHost(p.updateGradients, staged.get(p.index));
    }

    /** A part's gradients in pinned memory; the next part's begin to come. */
    Buffer take(Part p) {
        Objects.requireNonNull(coming[p.index % STAGES]).await(FOREVER);
        coming[p.index % STAGES] = null;
        if (p.index + 1 < parts.length) {
            start(parts[p.index + 1]);
        }
        return staged.get(p.index);
    }

    /** Waits for what is still coming, after an error. */
    void settle() {
        for (int i = 0; i < STAGES; i++) {
            Transfer t = coming[i];
            coming[i] = null;
            if (t != null) {
                try {
                    t.await(FOREVER);
                } catch (RuntimeException e) {
                    // Not needed: the update has already failed.
                }
            }
        }
    }
}

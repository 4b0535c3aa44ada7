package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A layer in a slot. */
final class LoadedLayer {
    final int layer;
    final LayerBuffers buffers;
    final SlotTensor[] parameters;
    final SlotTensor[] gradients;
    final SlotTensor @Nullable [] checkpoint;

    /** Whether the outputs of a phase are on their way to a store; guarded by {@link WriteBack}. */
    final boolean[] writing = new boolean[Phase.values().length];

    LoadedLayer(ScheduleContext context, int layer, Slot slot) {
        Layer l = context.layers().get(layer);
        this.layer = layer;
        long[] at = new long[2];
        this.parameters = tensors(context, l.parameters(), slot, at);
        this.gradients = tensors(context, l.gradients(), slot, at);
        LayerTensor c = l.checkpoint();
        this.checkpoint = c == null ? null : tensors(context, List.of(c), slot, at);
        this.buffers =
                new LayerBuffers(
                        l,
                        Arrays.stream(parameters).map(s -> s.onDevice).toList(),
                        Arrays.stream(gradients).map(s -> s.onDevice).toList(),
                        checkpoint == null ? null : checkpoint[0].onDevice);
    }

    private SlotTensor[] tensors(
            ScheduleContext context, List<LayerTensor> tensors, Slot slot, long[] at) {
        SlotTensor[] all = new SlotTensor[tensors.size()];
        for (int i = 0; i < all.length; i++) {
            LayerTensor t = tensors.get(i);
            Buffer onDevice = slot.memory.lease(at[0], t.type(), t.count(), () -> {});
            at[0] += Layer.padded(t);
            Buffer onHost = t.host();
            if (onHost == null) {
                onHost =
                        Objects.requireNonNull(slot.stage)
                                .lease(at[1], t.type(), t.count(), () -> {});
                at[1] += SlotRing.stagePadded(t);
            }
            all[i] = new SlotTensor(context, layer, t, onDevice, onHost);
        }
        return all;
    }

    SlotTensor @Nullable [] outputs(Phase phase) {
        return phase == Phase.FORWARD ? checkpoint : gradients;
    }

    /** Throws if a fetch failed; waits for it if it is under way. */
    void checkFetched(Phase phase, Duration timeout) {
        for (SlotTensor s : parameters) {
            s.in.await(timeout);
        }
        SlotTensor[] c = checkpoint;
        if (phase == Phase.BACKWARD && c != null) {
            c[0].in.await(timeout);
        }
    }

    /** Lets a stream wait for what was fetched. */
    void orderBefore(Stream compute, Phase phase, Duration timeout) {
        for (SlotTensor s : parameters) {
            s.in.before(compute, timeout);
        }
        SlotTensor[] c = checkpoint;
        if (phase == Phase.BACKWARD && c != null) {
            c[0].in.before(compute, timeout);
        }
    }

    /** Waits for reads of a store, however they end; returns whether they did. */
    boolean endReads(long deadline) {
        boolean ended = endIo(parameters, deadline);
        boolean checkpointEnded = checkpoint == null || endIo(checkpoint, deadline);
        return ended && checkpointEnded;
    }

    /** Waits for reads or writes of a store, however they end; returns whether they did. */
    static boolean endIo(SlotTensor[] tensors, long deadline) {
        boolean ended = true;
        for (SlotTensor s : tensors) {
            ended &= s.endIo(deadline);
        }
        return ended;
    }

    /** Waits for fetches, however they end; returns whether they did. */
    boolean settleFetches(long deadline) {
        boolean ended = settle(parameters, true, deadline);
        // Even if the first did not end: both have to be waited for.
        boolean checkpointEnded = checkpoint == null || settle(checkpoint, true, deadline);
        return ended && checkpointEnded;
    }

    static boolean settle(SlotTensor[] tensors, boolean inwards, long deadline) {
        boolean ended = true;
        for (SlotTensor s : tensors) {
            ended &= s.settle(inwards, deadline);
        }
        return ended;
    }
}

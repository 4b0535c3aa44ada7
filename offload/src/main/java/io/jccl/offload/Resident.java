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
final class Resident {
    final int layer;
    final LayerBuffers buffers;
    final Seat[] parameters;
    final Seat[] gradients;
    final Seat @Nullable [] checkpoint;

    /** Whether the outputs of a phase are on their way to a store; guarded by {@link Outputs}. */
    final boolean[] writing = new boolean[Phase.values().length];

    Resident(ScheduleContext context, int layer, Slot slot) {
        Layer l = context.layers().get(layer);
        this.layer = layer;
        long[] at = new long[2];
        this.parameters = seats(context, l.parameters(), slot, at);
        this.gradients = seats(context, l.gradients(), slot, at);
        LayerTensor c = l.checkpoint();
        this.checkpoint = c == null ? null : seats(context, List.of(c), slot, at);
        this.buffers =
                new LayerBuffers(
                        l,
                        Arrays.stream(parameters).map(s -> s.onDevice).toList(),
                        Arrays.stream(gradients).map(s -> s.onDevice).toList(),
                        checkpoint == null ? null : checkpoint[0].onDevice);
    }

    private Seat[] seats(ScheduleContext context, List<LayerTensor> tensors, Slot slot, long[] at) {
        Seat[] all = new Seat[tensors.size()];
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
            all[i] = new Seat(context, layer, t, onDevice, onHost);
        }
        return all;
    }

    Seat @Nullable [] outputs(Phase phase) {
        return phase == Phase.FORWARD ? checkpoint : gradients;
    }

    /** Throws if a fetch failed; waits for it if it is under way. */
    void checkFetched(Phase phase, Duration timeout) {
        for (Seat s : parameters) {
            s.in.await(timeout);
        }
        Seat[] c = checkpoint;
        if (phase == Phase.BACKWARD && c != null) {
            c[0].in.await(timeout);
        }
    }

    /** Lets a stream wait for what was fetched. */
    void orderBefore(Stream compute, Phase phase) {
        for (Seat s : parameters) {
            s.in.before(compute);
        }
        Seat[] c = checkpoint;
        if (phase == Phase.BACKWARD && c != null) {
            c[0].in.before(compute);
        }
    }

    /** Waits for reads of a store, however they end. */
    void endReads() {
        for (Seat s : parameters) {
            s.endIo();
        }
        if (checkpoint != null) {
            for (Seat s : checkpoint) {
                s.endIo();
            }
        }
    }

    /** Waits for fetches, however they end; tells whether they did. */
    boolean settleFetches(long deadline) {
        boolean ended = settle(parameters, true, deadline);
        // Also if the first did not end: it is to be waited for all the same.
        boolean checkpointEnded = checkpoint == null || settle(checkpoint, true, deadline);
        return ended && checkpointEnded;
    }

    static boolean settle(Seat[] seats, boolean inwards, long deadline) {
        boolean ended = true;
        for (Seat s : seats) {
            ended &= s.settle(inwards, deadline);
        }
        return ended;
    }
}

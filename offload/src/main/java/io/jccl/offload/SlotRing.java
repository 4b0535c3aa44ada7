package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import java.util.ArrayList;
import java.util.List;

/**
 * The slots of a schedule, each as large as the largest layer, and their stages in pinned memory,
 * through which tensors in a store pass. Guarded by the {@link ScheduleState}.
 */
final class SlotRing {
    private final ScheduleContext context;
    private final List<Slot> slots = new ArrayList<>();
    final long slotBytes;
    final long stageBytes;

    /** Whether some outputs go to a store. */
    final boolean writes;

    SlotRing(ScheduleContext context) {
        this.context = context;
        long largest = 0;
        long largestStage = 0;
        boolean outputs = false;
        for (Layer l : context.layers()) {
            largest = Math.max(largest, l.deviceBytes());
            long stage = 0;
            for (LayerTensor t : l.parameters()) {
                stage += t.place() == null ? 0 : stagePadded(t);
            }
            for (LayerTensor t : l.gradients()) {
                stage += t.place() == null ? 0 : stagePadded(t);
                outputs |= t.place() != null;
            }
            LayerTensor c = l.checkpoint();
            if (c != null && c.place() != null) {
                stage += stagePadded(c);
                outputs = true;
            }
            largestStage = Math.max(largestStage, stage);
        }
        this.slotBytes = Math.max(Layer.ALIGNMENT, largest);
        this.stageBytes = largestStage;
        this.writes = outputs;
    }

    /** Reads and writes of drives want whole pages. */
    static long stagePadded(LayerTensor t) {
        return Math.max(1, (t.byteSize() + 4095) / 4096) * 4096;
    }

    int size() {
        return slots.size();
    }

    Slot get(int i) {
        return slots.get(i);
    }

    /** Allocates the slots that the options require: at least one, and more if there is room. */
    void take() {
        try {
            addSlot();
        } catch (OffloadMemoryException e) {
            Layer largest = context.layers().getFirst();
            for (Layer l : context.layers()) {
                largest = l.deviceBytes() > largest.deviceBytes() ? l : largest;
            }
            throw new OffloadMemoryException(
                    e.tier(),
                    e.asked(),
                    e.free(),
                    "layer '"
                            + largest.name()
                            + "' needs "
                            + slotBytes
                            + " bytes of device memory by itself; "
                            + (e.asked() > e.free()
                                    ? (e.asked() - e.free())
                                            + " bytes are missing: raise the budget, or split the"
                                            + " layer"
                                    : "the budget has them, but the device itself has no room"),
                    e);
        }
        int depth = context.options().depth();
        grow(depth == ScheduleOptions.AUTOMATIC ? 2 : depth + 1);
    }

    /** Takes more slots, as far as there is room. */
    void grow(int wanted) {
        while (slots.size() < wanted) {
            try {
                addSlot();
            } catch (OffloadMemoryException e) {
                return; // less overlap, and that is all
            }
        }
    }

    private void addSlot() {
        long free = context.options().deviceBytes() - slots.size() * slotBytes;
        if (slotBytes > free) {
            throw new OffloadMemoryException(
                    Tier.DEVICE, slotBytes, free, "the schedule's limit is reached", null);
        }
        Buffer memory = context.tiers().device().allocate(DataType.UINT8, slotBytes);
        Buffer stage = null;
        boolean done = false;
        try {
            if (stageBytes > 0) {
                stage = context.tiers().pinned().allocate(DataType.UINT8, stageBytes);
            }
            Event[] worked = {
                context.tiers().engine().device().newEvent(),
                context.tiers().engine().device().newEvent()
            };
            slots.add(new Slot(memory, stage, worked, context.layers().size()));
            done = true;
        } finally {
            if (!done) {
                memory.close();
                if (stage != null) {
                    stage.close();
                }
            }
        }
    }

    /** Forgets what the slots hold. */
    void reset() {
        for (int i = 0; i < slots.size(); i++) { // no iterator: no garbage
            slots.get(i).reset();
        }
    }

    /** Gives the memory back. */
    void close() {
        for (Slot s : slots.reversed()) {
            for (Event e : s.worked) {
                e.close();
            }
            s.memory.close();
            if (s.stage != null) {
                s.stage.close();
            }
        }
    }
}

package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import java.util.IdentityHashMap;
import org.jspecify.annotations.Nullable;

/**
 * Copies between buffers that are the same in every step: the transfer of two buffers is made once
 * and then started again, so that a step creates no objects.
 */
final class Copies {
    private final TransferEngine engine;
    private final IdentityHashMap<Buffer, IdentityHashMap<Buffer, Transfer>> known =
            new IdentityHashMap<>();

    Copies(TransferEngine engine) {
        this.engine = engine;
    }

    /**
     * Starts a copy to the device.
     *
     * @param after what it waits for: always the same for these two buffers; null for nothing
     */
    Transfer toDevice(Buffer host, Buffer device, @Nullable Event after) {
        Transfer t = ended(host, device);
        if (t != null) {
            return t.restart();
        }
        return keep(
                host,
                device,
                after == null
                        ? engine.toDevice(host, device, 0)
                        : engine.toDevice(host, device, 0, after));
    }

    /** Starts a copy to the host. */
    Transfer toHost(Buffer device, Buffer host) {
        Transfer t = ended(device, host);
        return t != null ? t.restart() : keep(device, host, engine.toHost(device, host, 0));
    }

    /** The transfer of two buffers; null if there is none, or it is under way after an error. */
    private @Nullable Transfer ended(Buffer from, Buffer to) {
        IdentityHashMap<Buffer, Transfer> targets = known.get(from);
        Transfer t = targets == null ? null : targets.get(to);
        return t != null && t.isDone() ? t : null;
    }

    private Transfer keep(Buffer from, Buffer to, Transfer t) {
        known.computeIfAbsent(from, b -> new IdentityHashMap<>()).put(to, t);
        return t;
    }
}

package io.jccl.offload;

import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.internal.Closing;
import java.util.ArrayDeque;
import java.util.List;

/**
 * Events of a device that are used again and again.
 *
 * <p><b>Threads:</b> any.
 */
final class EventPool {
    private final Device device;
    private final ArrayDeque<Event> events = new ArrayDeque<>();

    EventPool(Device device) {
        this.device = device;
    }

    Event take() {
        synchronized (this) {
            if (!events.isEmpty()) {
                return events.pop();
            }
        }
        return device.newEvent();
    }

    synchronized void give(Event event) {
        events.push(event);
    }

    synchronized void close() {
        try {
            Closing.all(List.copyOf(events));
        } finally {
            events.clear();
        }
    }
}

package io.jccl.offload.zero;

import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Makes the optimizer's stream wait for the streams that write gradients. On the host an event
 * completes also after an error, so it is asked for the error.
 */
final class Written {
    private final Stream stream;

    /** By layer, so that none is recorded again before it has been asked. */
    private final Event[] events;

    private final Runnable[] checks;
    private volatile @Nullable Throwable error;

    Written(Device device, Stream stream, int layers, Memory memory) {
        this.stream = stream;
        events = new Event[layers];
        Arrays.setAll(events, i -> memory.own(device.newEvent()));
        checks = new Runnable[layers];
        Arrays.setAll(checks, i -> () -> check(events[i]));
    }

    /** Makes the optimizer's stream wait for the work enqueued so far on a stream. */
    void follow(int layer, Stream user) {
        events[layer].record(user);
        stream.waitFor(events[layer]);
        if (stream.device().kind() == Device.Kind.HOST) {
            stream.launchHostFunction(checks[layer]);
        }
    }

    private void check(Event event) {
        Throwable e = event.error();
        error = e == null ? error : e;
    }

    /** The error found since the last call; the optimizer's stream is idle. */
    @Nullable JcclException takeError() {
        Throwable e = error;
        error = null;
        return e == null
                ? null
                : new JcclException(
                        "gradients were not computed, because of an error on their stream: "
                                + e.getMessage(),
                        e);
    }
}

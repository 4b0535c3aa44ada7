package io.jccl.rendezvous;

import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.time.Duration;

/** Waits for a value by polling with increasing intervals. */
final class Waiting {
    private static final long FIRST_NANOS = 100_000;
    private static final long LONGEST_NANOS = 50_000_000;

    private Waiting() {}

    static String absent(String key, Store store, Duration timeout) {
        return "'" + key + "' was not set in " + store + " within " + timeout;
    }

    static byte[] await(Store store, String key, Duration timeout) {
        long began = System.nanoTime();
        long pause = FIRST_NANOS;
        while (true) {
            byte[] value = store.get(key);
            if (value != null) {
                return value;
            }
            if (System.nanoTime() - began > Deadline.nanos(timeout)) {
                throw new JcclTimeoutException(absent(key, store, timeout));
            }
            Waits.park(pause);
            pause = Math.min(pause * 2, LONGEST_NANOS);
        }
    }
}

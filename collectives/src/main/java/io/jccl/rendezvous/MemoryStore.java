package io.jccl.rendezvous;

import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import org.jspecify.annotations.Nullable;

/** A store in the memory of this JVM. */
final class MemoryStore implements Store {
    private final ConcurrentMap<String, byte[]> values = new ConcurrentHashMap<>();
    private final ConcurrentMap<String, Long> counters = new ConcurrentHashMap<>();

    /** Latches that open when a value is set. */
    private final ConcurrentMap<String, CountDownLatch> awaited = new ConcurrentHashMap<>();

    @Override
    public void set(String key, byte[] value) {
        values.put(Limits.key(key), Limits.value(key, value).clone());
        arrived(key);
    }

    private void arrived(String key) {
        CountDownLatch latch = awaited.remove(key);
        if (latch != null) {
            latch.countDown();
        }
    }

    @Override
    public byte @Nullable [] get(String key) {
        byte[] value = values.get(Limits.key(key));
        return value == null ? null : value.clone();
    }

    @Override
    public byte[] await(String key, Duration timeout) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        while (true) {
            byte[] value = get(key);
            if (value != null) {
                return value;
            }
            CountDownLatch latch = awaited.computeIfAbsent(key, k -> new CountDownLatch(1));
            // It may have been set before the latch was visible.
            if (!values.containsKey(key)) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(Waiting.absent(key, this, timeout));
                }
                boolean unused = Waits.await(latch, left);
            }
        }
    }

    @Override
    public long add(String key, long delta) {
        return counters.merge(Limits.key(key), delta, Long::sum);
    }

    @Override
    public boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value) {
        byte[] fresh = Limits.value(key, value).clone();
        boolean[] done = new boolean[1];
        // Returning null for an absent key leaves the map unchanged.
        var unused =
                values.compute(
                        Limits.key(key),
                        (k, old) -> {
                            done[0] = Arrays.equals(old, expected);
                            return done[0] ? fresh : old;
                        });
        if (done[0]) {
            arrived(key);
        }
        return done[0];
    }

    @Override
    public void close() {
        // Nothing to release.
    }

    @Override
    public String toString() {
        return "the store in memory";
    }
}

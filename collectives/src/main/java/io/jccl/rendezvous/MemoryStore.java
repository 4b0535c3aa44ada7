package io.jccl.rendezvous;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.jspecify.annotations.Nullable;

/** Values in this JVM. */
final class MemoryStore implements Store {
    private final ConcurrentMap<String, byte[]> values = new ConcurrentHashMap<>();
    private final ConcurrentMap<String, Long> counters = new ConcurrentHashMap<>();

    @Override
    public void set(String key, byte[] value) {
        values.put(key, value.clone());
    }

    @Override
    public byte @Nullable [] get(String key) {
        byte[] value = values.get(key);
        return value == null ? null : value.clone();
    }

    @Override
    public long add(String key, long delta) {
        return counters.merge(key, delta, Long::sum);
    }

    @Override
    public void close() {
        // Nothing is held.
    }

    @Override
    public String toString() {
        return "the store in memory";
    }
}

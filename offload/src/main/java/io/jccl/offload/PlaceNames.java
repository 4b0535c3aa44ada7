package io.jccl.offload;

import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The names under which open buffers have places in a store, which has one place for each name.
 *
 * <p><b>Threads:</b> any.
 */
final class PlaceNames {
    private static final Map<TierStore, Set<String>> TAKEN =
            Collections.synchronizedMap(new WeakHashMap<>());

    private PlaceNames() {}

    /** Takes a name; false if another buffer has it. */
    static boolean take(TierStore store, String name) {
        return of(store).add(name);
    }

    static void giveBack(TierStore store, String name) {
        of(store).remove(name);
    }

    private static Set<String> of(TierStore store) {
        return TAKEN.computeIfAbsent(store, s -> ConcurrentHashMap.newKeySet());
    }
}

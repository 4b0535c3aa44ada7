package io.jccl.engine;

import io.jccl.Communicator;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.WeakHashMap;

/**
 * Which communicators of the host engine and of NCCL were made from which, for who has to end them
 * all. Those that nobody can reach any more are forgotten; open ones can be reached.
 *
 * <p><b>Threads:</b> any.
 */
public final class Descendants {
    /** What was made from each, with numbers that grow. */
    private static final Map<Communicator, Map<Communicator, Long>> MADE = new WeakHashMap<>();

    private static long last;

    private Descendants() {}

    /**
     * Notes that a communicator was made from another one, and so from what that was made from.
     *
     * @return the new one
     */
    public static synchronized <C extends Communicator> C add(Communicator parent, C made) {
        long number = ++last;
        MADE.computeIfAbsent(parent, p -> new WeakHashMap<>());
        MADE.forEach((from, all) -> {
            if (from == parent || all.containsKey(parent)) {
                all.put(made, number);
            }
        });
        return made;
    }

    /**
     * What was made from a communicator, and from those in turn, open or not; the newest first. As
     * all ranks make them in one order, so do all have them here, and may close them in it, as NCCL
     * demands: its destroy waits for other ranks.
     */
    public static synchronized List<Communicator> of(Communicator communicator) {
        Map<Long, Communicator> sorted = new TreeMap<>(Comparator.reverseOrder());
        MADE.getOrDefault(communicator, Map.of()).forEach((c, number) -> sorted.put(number, c));
        return List.copyOf(sorted.values());
    }
}

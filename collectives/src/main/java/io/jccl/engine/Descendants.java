package io.jccl.engine;

import io.jccl.Communicator;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * Which communicators of the host engine and of NCCL were made from which, for who has to end them
 * all. Those that nobody can reach any more are forgotten; open ones can be reached.
 *
 * <p><b>Threads:</b> any.
 */
public final class Descendants {
    private static final Map<Communicator, Set<Communicator>> MADE = new WeakHashMap<>();

    private Descendants() {}

    /**
     * Notes that a communicator was made from another one, and so from what that was made from.
     *
     * @return the new one
     */
    public static synchronized <C extends Communicator> C add(Communicator parent, C made) {
        MADE.computeIfAbsent(parent, p -> Collections.newSetFromMap(new WeakHashMap<>()));
        MADE.forEach((from, all) -> {
            if (from == parent || all.contains(parent)) {
                all.add(made);
            }
        });
        return made;
    }

    /** What was made from a communicator, and from those in turn, open or not. */
    public static synchronized List<Communicator> of(Communicator communicator) {
        return List.copyOf(MADE.getOrDefault(communicator, Set.of()));
    }
}

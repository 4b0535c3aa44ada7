package io.jccl;

import java.util.List;
import java.util.Objects;

/**
 * Records operations and then submits them together, so that a rank can send to and receive from
 * many ranks in any order without deadlock, and so that one thread can drive several ranks.
 *
 * {@snippet class="snippets.Collectives" region="group"}
 *
 * <p>Nothing runs before the body has returned; if the body throws, nothing runs at all. Methods
 * that return a result at once, such as {@link Communicator#split}, throw {@link
 * IllegalStateException} in the body; the communicators remain usable. All operations of one
 * communicator in a group go to the same stream, or {@link IllegalArgumentException} is thrown.
 * Groups may be nested; the outermost one submits. If a nested one throws and the outer body
 * catches that, the outer one throws {@link IllegalStateException} and nothing runs.
 *
 * <p><b>Threads:</b> the body runs on the calling thread, which must be the thread that uses the
 * communicators.
 */
public final class Group {
    private Group() {}

    /**
     * Records and submits operations of one communicator.
     *
     * @param communicator whose operations are recorded
     * @param body calls them
     */
    public static void run(Communicator communicator, Runnable body) {
        Objects.requireNonNull(body, "body");
        EngineProvider.Holder.ENGINES.group(communicator, body);
    }

    /**
     * Records and submits operations of several communicators, such as all ranks of {@link
     * Communicator#local}. The operations of different ranks run concurrently.
     *
     * @param communicators whose operations are recorded; either all or none over NCCL
     * @param body calls them
     * @throws IllegalArgumentException if communicators over NCCL and others are mixed
     */
    public static void run(List<? extends Communicator> communicators, Runnable body) {
        Objects.requireNonNull(body, "body");
        EngineProvider.Holder.ENGINES.group(communicators, body);
    }
}

package io.jccl;

import java.util.List;
import java.util.Objects;

/**
 * Operations that are recorded first and then submitted together, so that a rank can send to and
 * receive from many others without caring for the order, and so that one thread can drive several
 * ranks.
 *
 * {@snippet class="snippets.Collectives" region="group"}
 *
 * <p>Nothing runs before the body has returned. If the body throws, nothing runs at all. What needs
 * its result at once, such as {@link Communicator#split}, is refused in the body with {@link
 * IllegalStateException}, and the communicators stay usable. All operations of one communicator in
 * a group go to the same stream. Groups may be nested; the outermost submits.
 *
 * <p><b>Threads:</b> the body runs on the calling thread, which must be the one that uses the
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
     * Communicator#local}. Each rank's operations run beside those of the others.
     *
     * @param communicators whose operations are recorded
     * @param body calls them
     */
    public static void run(List<? extends Communicator> communicators, Runnable body) {
        Objects.requireNonNull(body, "body");
        EngineProvider.Holder.ENGINES.group(communicators, body);
    }
}

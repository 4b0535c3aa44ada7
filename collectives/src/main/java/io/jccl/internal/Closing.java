package io.jccl.internal;

import io.jccl.error.JcclException;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Closes several resources, even if closing one of them fails. */
public final class Closing {
    private Closing() {}

    /**
     * Closes in order; throws the first error, the others suppressed.
     *
     * @param things the resources
     */
    public static void all(List<? extends AutoCloseable> things) {
        RuntimeException first = null;
        for (AutoCloseable thing : things) {
            first = one(thing, first);
        }
        if (first != null) {
            throw first;
        }
    }

    private static @Nullable RuntimeException one(
            AutoCloseable thing, @Nullable RuntimeException before) {
        try {
            thing.close();
            return before;
        } catch (Exception e) {
            RuntimeException now =
                    e instanceof RuntimeException r ? r : new JcclException("close: " + e, e);
            if (before == null) {
                return now;
            }
            before.addSuppressed(now);
            return before;
        }
    }
}

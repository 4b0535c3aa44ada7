package io.jccl.device.host;

import java.lang.StackWalker.StackFrame;
import java.lang.ref.Cleaner;
import java.util.List;

/** Reports objects that became unreachable without being closed. */
public final class Leaks {
    private static final System.Logger LOG = System.getLogger("io.jccl");
    private static final Cleaner CLEANER = Cleaner.create();

    /** Stack frames to skip: the constructor below, and {@link #watch}. */
    private static final int OWN_FRAMES = 2;

    private static final int FRAMES = 12;

    private Leaks() {}

    /** The state of a watched object; it must not refer to the object. */
    public static final class Watched implements Runnable {
        private final String name;
        private final Runnable end;

        /** Always recorded: it costs little compared to creating a thread or a driver's handle. */
        private final List<StackFrame> creators =
                StackWalker.getInstance().walk(s -> s.skip(OWN_FRAMES).limit(FRAMES).toList());

        private volatile boolean closed;

        private Watched(String name, Runnable end) {
            this.name = name;
            this.end = end;
        }

        @Override
        public void run() {
            if (!closed) {
                end.run();
                StringBuilder text = new StringBuilder(name);
                text.append(" was never closed, and nothing refers to it any more; it was created");
                creators.forEach(f -> text.append("\n\tat ").append(f));
                LOG.log(System.Logger.Level.WARNING, text.toString());
            }
        }

        /** The object was closed: there is nothing to report. */
        public void closed() {
            closed = true;
        }
    }

    /**
     * Watches an object until it is unreachable.
     *
     * @param object must be closed by its user
     * @param name its name in the report
     * @param end action if it was not closed; must not refer to the object
     */
    public static Watched watch(Object object, String name, Runnable end) {
        Watched watched = new Watched(name, end);
        CLEANER.register(object, watched);
        return watched;
    }
}

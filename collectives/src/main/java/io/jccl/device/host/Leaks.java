package io.jccl.device.host;

import java.lang.StackWalker.StackFrame;
import java.lang.ref.Cleaner;
import java.util.List;

/** Reports what nobody closed before the last reference to it was gone. */
public final class Leaks {
    private static final System.Logger LOG = System.getLogger("io.jccl");
    private static final Cleaner CLEANER = Cleaner.create();

    /** Of the stack: the constructor below, and {@link #watch}. */
    private static final int OWN_FRAMES = 2;

    private static final int FRAMES = 12;

    private Leaks() {}

    /** What is watched over; it must not refer to the object that is. */
    public static final class Watched implements Runnable {
        private final String name;
        private final Runnable end;

        /** Always kept: next to what is created, a thread or a driver's handle, it costs little. */
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
     * Watches over an object until it is unreachable.
     *
     * @param object what somebody should close
     * @param name what to call it
     * @param end what to do for it then; must not refer to the object
     */
    public static Watched watch(Object object, String name, Runnable end) {
        Watched watched = new Watched(name, end);
        CLEANER.register(object, watched);
        return watched;
    }
}

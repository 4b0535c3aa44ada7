package io.jccl.flight;

import io.jccl.Communicator;
import io.jccl.Group;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Where in the user's program an operation was called. */
final class CallSite {
    /** Packages whose frames are not the user's, including their subpackages. */
    private static final String[] PACKAGES = {
        "java.",
        "jdk.",
        "sun.",
        "io.jccl.bindings.",
        "io.jccl.bootstrap.",
        "io.jccl.device.",
        "io.jccl.engine.",
        "io.jccl.flight.",
        "io.jccl.internal.",
        "io.jccl.provider.",
        "io.jccl.rendezvous.",
    };

    /** Classes of the public API's package that call user code or are called by it. */
    private static final Set<String> CLASSES =
            Set.of(Communicator.class.getName(), Group.class.getName(), "io.jccl.Ranks");

    private static final StackWalker WALKER = StackWalker.getInstance();

    private CallSite() {}

    private static boolean isUsers(String className) {
        for (String p : PACKAGES) {
            if (className.startsWith(p)) {
                return false;
            }
        }
        return !CLASSES.contains(className);
    }

    /** The user's frame nearest to the caller; null if there is none. */
    static @Nullable StackTraceElement caller() {
        return WALKER.walk(frames ->
                frames.filter(f -> isUsers(f.getClassName()))
                        .findFirst()
                        .map(StackWalker.StackFrame::toStackTraceElement)
                        .orElse(null));
    }

    /** The user's frame nearest to the top of a thread's stack. */
    static String of(Thread thread) {
        String site = of(thread.getStackTrace());
        return site != null
                ? site + " [" + thread.getName() + "]"
                : thread.isAlive()
                        ? "thread " + thread.getName()
                        : "thread " + thread.getName() + " has ended";
    }

    /** The user's frame nearest to the top of a stack; null if there is none. */
    static @Nullable String of(StackTraceElement[] stack) {
        for (StackTraceElement e : stack) {
            if (isUsers(e.getClassName())) {
                return text(e);
            }
        }
        return null;
    }

    /** Without class loader and module. */
    static String text(StackTraceElement e) {
        String file = e.getFileName();
        return e.getClassName()
                + "."
                + e.getMethodName()
                + "("
                + (file == null ? "?" : file)
                + (e.getLineNumber() < 0 ? "" : ":" + e.getLineNumber())
                + ")";
    }
}

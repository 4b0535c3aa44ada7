package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/** Nobody reads standard output any more, as after {@code | head}. */
public final class ClosedOutput extends IOException {
    /** The exit status by which a shell reports a process that SIGPIPE (13) ended. */
    public static final int STATUS = 128 + 13;

    private static final long serialVersionUID = 1;

    /** Ends a command without a message, as SIGPIPE would, which the JVM ignores. */
    public ClosedOutput() {
        super("standard output is closed");
    }

    /** What ends a command whose standard output cannot be written. */
    public static IOException error() {
        return isPipe() ? new ClosedOutput() : new IOException("standard output cannot be written");
    }

    /** Whether standard output has a reader that may end, unlike a file. */
    public static boolean isPipe() {
        try {
            String place = Files.readSymbolicLink(Path.of("/proc/self/fd/1")).toString();
            return place.startsWith("pipe:") || place.startsWith("socket:");
        } catch (IOException e) {
            return false;
        }
    }

    /** Whether an error comes from this. */
    public static boolean caused(@Nullable Throwable error) {
        Throwable e = error;
        while (e != null && !(e instanceof ClosedOutput)) {
            e = e.getCause();
        }
        return e != null;
    }
}

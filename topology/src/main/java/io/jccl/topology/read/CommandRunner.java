package io.jccl.topology.read;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * Runs a program and returns what it printed.
 *
 * <p><b>Threads:</b> one at a time, unless a runner allows more; {@link #system} does.
 */
@FunctionalInterface
public interface CommandRunner {
    /**
     * The result of a program.
     *
     * @param exit its exit status; meaningless if it was stopped
     * @param out what it printed to standard output
     * @param err what it printed to standard error
     * @param timedOut whether it was stopped because it took too long
     */
    record Output(int exit, String out, String err, boolean timedOut) {
        /** Checks that no argument is null. */
        public Output {
            Objects.requireNonNull(out, "out");
            Objects.requireNonNull(err, "err");
        }
    }

    /**
     * Runs a program.
     *
     * @param command its name, looked up in {@code PATH}, and arguments
     * @param limit the longest it may take; it is then stopped
     * @return its result
     * @throws IOException if the program does not exist or cannot be started
     */
    Output run(List<String> command, Duration limit) throws IOException;

    /**
     * A runner that starts processes.
     *
     * @return a runner that is safe for use by many threads
     */
    static CommandRunner system() {
        return SystemCommands::run;
    }
}

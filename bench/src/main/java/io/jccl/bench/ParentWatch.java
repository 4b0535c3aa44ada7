package io.jccl.bench;

import java.util.Map;

/**
 * Ends a rank whose {@code jccl run} is gone. A launcher that is killed outright has no chance to
 * end its ranks itself.
 */
final class ParentWatch {
    /** Set by {@code jccl run} for its ranks. */
    static final String VARIABLE = "JCCL_RUN_PID";

    /** As a shell reports a process that SIGTERM ended. */
    private static final int TERMINATED = 143;

    private ParentWatch() {}

    static void start(Map<String, String> environment) {
        String pid = environment.get(VARIABLE);
        if (pid == null || !pid.matches("[0-9]{1,18}")) {
            return;
        }
        ProcessHandle.of(Long.parseLong(pid))
                .ifPresentOrElse(
                        parent ->
                                Thread.ofPlatform()
                                        .name("jccl-parent-watch")
                                        .daemon()
                                        .start(() -> {
                                            parent.onExit().join();
                                            end();
                                        }),
                        ParentWatch::end);
    }

    /** No clean exit: hooks may wait for the other ranks, which are ending too. */
    private static void end() {
        Runtime.getRuntime().halt(TERMINATED);
    }
}

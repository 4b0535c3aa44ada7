package io.jccl.cli.launch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Ends a rank whose {@code jccl run} is gone. A launcher killed by SIGKILL cannot end its ranks
 * itself.
 */
public final class ParentWatch {
    /** Set by {@code jccl run} for its ranks. */
    static final String VARIABLE = "JCCL_RUN_PID";

    /** As a shell reports a process that SIGTERM ended. */
    private static final int TERMINATED = 143;

    /** Far above what the probe takes, also on a machine that is overloaded. */
    private static final long PROBE_SECONDS = 20;

    private ParentWatch() {}

    public static void start(Map<String, String> environment) {
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

    /**
     * A command line whose process the kernel kills when the thread that started it ends for any
     * reason. This needs setpriv of util-linux; without it (or with one that lacks the option) the
     * command line is returned unchanged, and only programs that call {@link #start} end.
     */
    static List<String> bound(List<String> command) {
        List<String> bind = List.of("setpriv", "--pdeathsig", "KILL");
        try {
            Process probe =
                    new ProcessBuilder(concat(bind, List.of("true")))
                            .redirectErrorStream(true)
                            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                            .start();
            if (probe.waitFor(PROBE_SECONDS, TimeUnit.SECONDS) && probe.exitValue() == 0) {
                return concat(bind, command);
            }
            probe.destroyForcibly();
        } catch (IOException e) {
            // There is no setpriv.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return command;
    }

    private static List<String> concat(List<String> first, List<String> rest) {
        List<String> all = new ArrayList<>(first);
        all.addAll(rest);
        return all;
    }

    /** Not a clean exit: shutdown hooks may wait for the other ranks, which are ending too. */
    private static void end() {
        Runtime.getRuntime().halt(TERMINATED);
    }
}

package io.jccl.topology.read;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Runs a program as a process. */
final class SystemCommands {
    /** Far more than nvidia-smi prints. What goes beyond is read, and dropped. */
    private static final int MAX_OUTPUT = 8 << 20;

    /** How long a stopped process may take to close its output. */
    private static final Duration GRACE = Duration.ofSeconds(2);

    private SystemCommands() {}

    static CommandRunner.Output run(List<String> command, Duration limit) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().put("LC_ALL", "C");
        Process process = builder.start();
        process.getOutputStream().close();
        // Both at once: a full pipe would stop it.
        Reader out = new Reader(process.getInputStream());
        Reader err = new Reader(process.getErrorStream());
        boolean ended = false;
        try {
            ended = process.waitFor(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            if (!ended) {
                // A child that lives on would keep the output open.
                process.descendants().forEach(ProcessHandle::destroyForcibly);
                process.destroyForcibly();
            }
        }
        String printed = out.text();
        return new CommandRunner.Output(
                ended ? process.exitValue() : -1, printed, err.text(), !ended);
    }

    /** Reads a stream to its end on a thread of its own. */
    private static final class Reader {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private final Thread thread;

        Reader(InputStream in) {
            thread = Thread.ofPlatform().daemon().name("jccl-command-output").start(() -> read(in));
        }

        private void read(InputStream in) {
            byte[] buffer = new byte[8192];
            try (in) {
                for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
                    synchronized (bytes) {
                        bytes.write(buffer, 0, Math.min(n, MAX_OUTPUT - bytes.size()));
                    }
                }
            } catch (IOException e) {
                // The process was stopped: what came so far counts.
            }
        }

        String text() {
            try {
                thread.join(GRACE.toMillis());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            synchronized (bytes) {
                return bytes.toString(StandardCharsets.UTF_8);
            }
        }
    }
}

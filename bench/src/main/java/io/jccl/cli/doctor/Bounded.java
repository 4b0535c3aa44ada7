package io.jccl.cli.doctor;

import io.jccl.cli.shell.Output;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.jspecify.annotations.Nullable;

/**
 * Runs calls that may fail in any way or never return, such as calls into a broken driver. A call
 * that has timed out keeps its daemon thread.
 */
final class Bounded {
    private Bounded() {}

    static <T> Reading<T> call(String what, Duration patience, Callable<T> body) {
        FutureTask<T> task = new FutureTask<>(body);
        Thread.ofPlatform().daemon().name("jccl-doctor-" + what).start(task);
        try {
            return Reading.known(task.get(patience.toMillis(), TimeUnit.MILLISECONDS));
        } catch (TimeoutException e) {
            return Reading.unknown(
                    what + " has not answered within " + patience.toMillis() / 1000.0 + " s");
        } catch (ExecutionException e) {
            return Reading.unknown(reason(e.getCause() == null ? e : e.getCause()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Reading.unknown("interrupted");
        }
    }

    /** A throwable in one line. */
    static String reason(Throwable t) {
        @Nullable String message = t.getMessage();
        String name = t.getClass().getSimpleName();
        return message == null || message.isBlank()
                ? name
                : Output.oneLine(message.strip().replaceAll("\\s*\\R\\s*", " "))
                        + (t instanceof Error || t instanceof UnsupportedOperationException
                                ? " (" + name + ")"
                                : "");
    }
}

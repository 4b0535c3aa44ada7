package io.jccl.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

/**
 * The threads of this JVM that compile, as Linux lists them. Ranks that wait for each other keep
 * their CPUs busy: if they occupy all CPUs, nothing is compiled until they sleep.
 *
 * <p><b>Threads:</b> one.
 */
final class CompilerThreads {
    /**
     * HotSpot's "C1 CompilerThread0", "C2 CompilerThread0" and so on. Linux keeps 15 letters: the
     * first ones, and since JDK 26 "C1 Comp..hread0".
     */
    static final String NAME = "[A-Z0-9]+ Comp(iler|\\.\\.).*";

    private static final long LOOK_NANOS = 1_000_000;

    /** Used if the threads are not listed, such as outside Linux. */
    private static final long BLIND_NANOS = 10_000_000;

    private final Path tasks;

    /** Of this process. */
    CompilerThreads() {
        this(Path.of("/proc/self/task"));
    }

    /**
     * Of some process.
     *
     * @param tasks its folder of threads
     */
    CompilerThreads(Path tasks) {
        this.tasks = tasks;
    }

    /**
     * Sleeps until no thread compiles.
     *
     * @param most maximum nanoseconds to wait
     * @return whether there was something to wait for
     */
    boolean sleepWhileBusy(long most) {
        List<Path> threads = list();
        if (threads.isEmpty()) {
            LockSupport.parkNanos(Math.min(most, BLIND_NANOS));
            return false;
        }
        long start = System.nanoTime();
        boolean busy = busy(threads);
        boolean waited = busy;
        // Between two methods a thread sleeps for a moment, so one check is not enough.
        for (int quiet = 0; quiet < 2 && System.nanoTime() - start < most; ) {
            LockSupport.parkNanos(LOOK_NANOS);
            busy = busy(threads);
            waited |= busy;
            quiet = busy ? 0 : quiet + 1;
        }
        return waited;
    }

    private List<Path> list() {
        List<Path> compilers = new ArrayList<>();
        try (Stream<Path> all = Files.list(tasks)) {
            for (Path task : (Iterable<Path>) all::iterator) {
                if (read(task.resolve("comm")).strip().matches(NAME)) {
                    compilers.add(task.resolve("stat"));
                }
            }
        } catch (IOException e) {
            // Not Linux.
        }
        return compilers;
    }

    private static boolean busy(List<Path> threads) {
        for (Path stat : threads) {
            String line = read(stat);
            // The state follows the name, which is in parentheses.
            int state = line.lastIndexOf(')') + 2;
            if (state < line.length() && (line.charAt(state) == 'R' || line.charAt(state) == 'D')) {
                return true;
            }
        }
        return false;
    }

    /** Empty if the thread has ended. */
    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return "";
        }
    }
}

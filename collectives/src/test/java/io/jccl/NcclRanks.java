package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** Ranks of the NCCL engine on the fake, each on a thread of its own. */
final class NcclRanks {
    /** Far above what anything here takes, so that only a hang comes near. */
    static final Duration PATIENCE = Duration.ofSeconds(30);

    static final CommunicatorOptions OPTIONS = CommunicatorOptions.DEFAULT.withTimeout(PATIENCE);

    /** What a test waits for in full, while the ranks that are not late have to come within it. */
    static final Duration SOON = Workers.patience(Duration.ofSeconds(1));

    static final CommunicatorOptions SHORT = CommunicatorOptions.DEFAULT.withTimeout(SOON);

    /** Every C function by which work gets to a stream. */
    private static final List<String> OPERATIONS =
            List.of(
                    "ncclAllReduce",
                    "ncclBroadcast",
                    "ncclReduce",
                    "ncclReduceScatter",
                    "ncclAllGather",
                    "ncclAlltoAll",
                    "ncclGather",
                    "ncclScatter",
                    "ncclSend",
                    "ncclRecv",
                    "ncclPutSignal",
                    "ncclSignal",
                    "ncclWaitSignal");

    /** What each rank runs. */
    interface Body<T> {
        void run(T rank) throws Exception;
    }

    /** Maximum number of ranks of a test. */
    private static final int MOST_RANKS = 4;

    private static final List<Communicator> OPENED = new ArrayList<>();

    private NcclRanks() {}

    static List<Device> devices(int size) {
        return TestFake.ranks(size);
    }

    static List<Communicator> open(int size, CommunicatorOptions options) {
        List<Communicator> ranks = Communicator.local(devices(size), options);
        synchronized (OPENED) {
            OPENED.addAll(ranks);
        }
        return ranks;
    }

    static NcclCommunicator nccl(Communicator c) {
        return (NcclCommunicator) c;
    }

    /** How many operations NCCL was given so far. */
    static long enqueued() {
        return OPERATIONS.stream().mapToLong(f -> Math.max(0, TestFake.calls(f))).sum();
    }

    /**
     * Objects of CUDA and NCCL that were not freed. Without ids that no rank took up: no call frees
     * them.
     */
    static long live() {
        devices(MOST_RANKS); // a device has a default stream from its first use on
        return TestFake.live("all") - TestFake.live("jobs");
    }

    /**
     * Runs a body for each, all at once.
     *
     * @return the error of each, null where there was none
     */
    static <T> List<@Nullable Throwable> errors(List<T> all, Body<? super T> body) {
        @Nullable Throwable[] errors = new Throwable[all.size()];
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < all.size(); i++) {
            int at = i;
            threads.add(
                    Thread.ofPlatform()
                            .daemon()
                            .name("rank " + i)
                            .start(() -> {
                                try {
                                    body.run(all.get(at));
                                } catch (Throwable t) {
                                    errors[at] = t;
                                }
                            }));
        }
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (Thread t : threads) {
            join(t, deadline);
        }
        return Arrays.asList(errors);
    }

    private static void join(Thread thread, long deadline) {
        try {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        if (thread.isAlive()) {
            StringBuilder text = new StringBuilder(thread.getName() + " hangs");
            for (StackTraceElement e : thread.getStackTrace()) {
                text.append("\n  at ").append(e);
            }
            throw new AssertionError(text);
        }
    }

    /** The same where none may fail. */
    static <T> void each(List<T> all, Body<? super T> body) {
        AssertionError first = null;
        for (Throwable t : errors(all, body)) {
            if (t != null && first == null) {
                first = new AssertionError("a rank failed: " + t, t);
            } else if (t != null && first != null) {
                first.addSuppressed(t);
            }
        }
        if (first != null) {
            throw first;
        }
    }

    /** Ends injected faults and whatever a test left open, as one does that fails. */
    static void reset() {
        TestFake.reset();
        List<Communicator> left;
        synchronized (OPENED) {
            left = List.copyOf(OPENED);
            OPENED.clear();
        }
        left.forEach(c -> c.abort("the test is over"));
        close(left);
        awaitLastCalls();
    }

    /** What hung until it was released frees its objects now, which the next test may count. */
    private static void awaitLastCalls() {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (Thread t : Thread.getAllStackTraces().keySet()) {
            if (t.getName().matches("jccl-(abort|destroy|abandon).*")) {
                join(t, deadline);
            }
        }
    }

    static void close(List<Communicator> ranks) {
        each(ranks, Communicator::close);
    }

    /** Sums one number over all ranks. */
    static long sum(Communicator c, long mine) {
        Stream stream = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT64, 1)) {
            b.setLong(0, mine);
            c.allReduce(b, ReduceOp.SUM, stream);
            stream.synchronize(PATIENCE);
            return b.getLong(0);
        }
    }

    /** Fails unless all can still work together. */
    static void checkUsable(List<Communicator> ranks) {
        int n = ranks.size();
        each(
                ranks,
                c -> {
                    long sum = sum(c, c.rank() + 1);
                    if (sum != n * (n + 1) / 2) {
                        throw new AssertionError("rank " + c.rank() + " sums to " + sum);
                    }
                });
    }

    /** The message of an error that has to be there. */
    static String text(@Nullable Throwable t) {
        return String.valueOf(Objects.requireNonNull(t, "no error").getMessage());
    }
}

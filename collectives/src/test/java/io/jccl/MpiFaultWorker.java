package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.host.HostBuffer;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * A rank of an MPI job in which something goes wrong. Prints a line with its rank for what it saw;
 * ends with 0 if nothing was thrown, 3 if what JCCL threw was caught.
 */
final class MpiFaultWorker {
    private static final Duration LONG = Duration.ofMinutes(5);

    /** Of the last operation. */
    private static volatile long began;

    private final Communicator comm;
    private final Stream stream;
    private final Buffer data;
    private final Buffer all;

    private MpiFaultWorker(Communicator comm) {
        this.comm = comm;
        this.stream = Device.host().defaultStream();
        this.data = Device.host().allocate(DataType.FLOAT32, 4);
        this.all = Device.host().allocate(DataType.FLOAT32, 4L * comm.size());
    }

    /** Takes a fault's name and the communicator's timeout in milliseconds. */
    public static void main(String[] args) throws Exception {
        int rank = Workers.rank(System.getenv());
        Duration timeout = Duration.ofMillis(Long.parseLong(args[1]));
        began = System.nanoTime();
        try {
            if (args[0].equals("absent") && rank == 1) {
                say(rank, "stays away");
                Thread.sleep(LONG);
            }
            if (!args[0].equals("absent") && !args[0].equals("left-for-long")) {
                // The timeout is not about how long JVMs take to start.
                Communicator.mpi(CommunicatorOptions.DEFAULT.withTimeout(LONG)).close();
            }
            Communicator comm = Communicator.mpi(CommunicatorOptions.DEFAULT.withTimeout(timeout));
            new MpiFaultWorker(comm).run(args[0]);
            comm.close();
            say(rank, "done");
        } catch (JcclException e) {
            say(rank, "waited " + (System.nanoTime() - began) / 1_000_000 + " ms");
            say(rank, "caught " + e.getClass().getSimpleName() + ": " + e.getMessage());
            System.exit(3);
        }
    }

    private static void say(int rank, String what) {
        System.out.println("RANK " + rank + " " + what);
        System.out.flush();
    }

    private void run(String fault) throws Exception {
        comm.barrier(stream);
        boolean other = comm.rank() == 1;
        switch (fault) {
            case "late" -> {
                if (other) {
                    Thread.sleep(3000);
                }
                reduce();
            }
            case "missing" -> {
                if (other) {
                    Thread.sleep(LONG);
                }
                reduce();
            }
            case "mismatch" -> comm.scatter(all, other ? 0 : 1, stream);
            case "stopped" -> {
                if (other) {
                    signal("STOP");
                }
                reduce();
                reduce();
            }
            case "sends" -> {
                try (Buffer large = Device.host().allocate(DataType.FLOAT32, 1 << 20)) {
                    began = System.nanoTime();
                    comm.send(large, 1 - comm.rank(), stream);
                }
            }
            case "interrupted" -> {
                if (other) {
                    Thread.sleep(600);
                    reduce();
                    Thread.sleep(8000); // until the other has given up, also on a busy machine
                    reduce();
                } else {
                    interruptSoon();
                    reduce();
                    say(0, Thread.interrupted() ? "kept the flag" : "lost the flag");
                    interruptSoon();
                    try {
                        reduce();
                    } catch (JcclException e) {
                        // Now: the other may have the job ended before this rank goes on.
                        say(0, "left it: " + e.getMessage());
                        throw e;
                    } finally {
                        say(0, Thread.interrupted() ? "has the flag still" : "lost the flag");
                        Thread.sleep(6000); // 5 s after this process ends, the job is ended
                    }
                }
            }
            case "killed" -> {
                if (other) {
                    signal("KILL");
                    Thread.sleep(LONG);
                }
                reduce();
                reduce();
            }
            case "abort", "abort-and-stay" -> {
                if (other) {
                    Thread.sleep(500);
                    comm.abort("the data is bad");
                    Thread.sleep(fault.equals("abort") ? Duration.ZERO : LONG);
                }
                reduce();
            }
            case "closed" -> {
                if (other) {
                    comm.close();
                    Thread.sleep(LONG);
                }
                reduce();
            }
            case "left", "left-for-long", "left-receive", "left-group", "left-open" -> {
                if (other) {
                    comm.close();
                    return;
                }
                switch (fault) {
                    case "left" -> reduce();
                    case "left-for-long" -> Thread.sleep(LONG);
                    case "left-receive" -> comm.recv(data, 1, stream);
                    case "left-group" -> leftGroup();
                    default -> Communicator.mpi(CommunicatorOptions.DEFAULT).close();
                }
            }
            case "early" -> early();
            case "saves", "saves-after-abort" -> {
                if (other && fault.equals("saves")) {
                    comm.close();
                    return;
                }
                if (other) {
                    comm.abort("disk full");
                    return;
                }
                if (!fault.equals("saves")) {
                    try {
                        reduce();
                    } catch (RankFailedException e) {
                        say(0, "caught " + e.getMessage());
                    }
                }
                Thread.sleep(fault.equals("saves") ? 12_000 : 3000);
                say(0, "saved");
            }
            case "long", "short" -> {
                if (other) {
                    comm.recv(data.slice(0, fault.equals("long") ? 2 : 4), 0, stream);
                } else {
                    comm.send(data.slice(0, fault.equals("long") ? 4 : 2), 1, stream);
                    Thread.sleep(LONG);
                }
            }
            case "rounds" -> {
                say(comm.rank(), "begins");
                for (int i = 0; i < 24; i++) {
                    reduce();
                    Thread.sleep(500);
                }
            }
            case "engine" -> {
                try (Communicator chosen = Communicator.fromEnvironment()) {
                    say(comm.rank(), "chooses " + chosen.engine());
                }
            }
            case "crossed" -> {
                try (Communicator second = Objects.requireNonNull(comm.split(0, comm.rank()));
                        Stream beside = Device.host().newStream();
                        Buffer more = Device.host().allocate(DataType.FLOAT32, 4)) {
                    comm.barrier(stream);
                    // Rank 0 is first in one collective, rank 1 in the other, and stays there.
                    (other ? second : comm).allReduce(data, ReduceOp.SUM, beside);
                    Thread.sleep(300);
                    (other ? comm : second).allReduce(more, ReduceOp.SUM, stream);
                    beside.synchronize();
                }
            }
            case "turns", "beside" -> {
                try (Communicator second = Objects.requireNonNull(comm.split(0, comm.rank()));
                        Stream beside = Device.host().newStream();
                        Buffer more = Device.host().allocate(DataType.FLOAT32, 1 << 16)) {
                    // In turn, or each as it comes: then no call may block.
                    for (int i = 0; i < 200; i++) {
                        second.allReduce(more, ReduceOp.MAX, beside);
                        if (fault.equals("turns")) {
                            beside.synchronize();
                        }
                        comm.allReduce(data, ReduceOp.MAX, stream);
                    }
                    beside.synchronize();
                }
            }
            case "freed" -> {
                reduce(comm, false, true);
                Communicator second = Objects.requireNonNull(comm.split(0, comm.rank()));
                Communicator third = Objects.requireNonNull(comm.split(0, comm.rank()));
                comm.barrier(stream);
                if (other) {
                    Thread.sleep(LONG);
                }
                reduce(second, true, false);
                receive(third);
                // A third thing that was left would make MPI go on with the other two.
                reduce(comm, true, false);
            }
            case "hook" -> {
                // Of one rank: the other may be refused first, and nothing ends a barrier with it.
                Communicator alone = Objects.requireNonNull(comm.split(comm.rank(), 0));
                Runtime.getRuntime()
                        .addShutdownHook(Thread.ofPlatform().unstarted(() -> atExit(alone)));
                System.exit(0);
            }
            case "closing-hook" -> {
                List<Communicator> all = new ArrayList<>();
                for (int i = 0; i < 20; i++) {
                    all.add(Objects.requireNonNull(comm.split(0, comm.rank())));
                }
                all.add(comm);
                comm.barrier(stream);
                Runtime.getRuntime()
                        .addShutdownHook(Thread.ofPlatform().unstarted(() -> closeSlowly(all)));
                System.exit(0);
            }
            case "closed-amid" -> {
                if (other) {
                    comm.recv(data, 0, stream);
                } else {
                    closeAmid();
                }
            }
            case "signals" -> signals();
            default -> throw new IllegalArgumentException(fault);
        }
    }

    /** While another thread is in an operation. */
    private void closeAmid() throws InterruptedException {
        Thread receives =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                comm.recv(data, 1, stream);
                            } catch (JcclException e) {
                                say(0, "left it: " + e.getMessage());
                            }
                        });
        while (!Arrays.toString(receives.getStackTrace()).contains("MpiMessages.finish")) {
            Thread.sleep(1);
        }
        comm.close();
        receives.join();
    }

    /** Some of them before operations are refused, some between that and MPI's end. */
    private static void closeSlowly(List<Communicator> all) {
        for (Communicator c : all) {
            c.close();
            Waits.park(1_000_000);
        }
        say(all.getLast().rank(), "closed all");
    }

    /** Goes on when all ranks end. */
    private void atExit(Communicator alone) {
        try {
            for (int i = 0; i < 200; i++) {
                Thread.sleep(50);
                alone.barrier(stream);
            }
            say(comm.rank(), "went on");
        } catch (InterruptedException | JcclException e) {
            say(comm.rank(), "in its hook: " + e.getMessage());
        }
    }

    /** Rank 1 has left, of three; one message comes. */
    private void leftGroup() {
        if (comm.rank() == 2) {
            comm.send(data, 0, stream);
            reduce();
            return;
        }
        Group.run(
                comm,
                () -> {
                    comm.recv(all.slice(0, 4), 1, stream);
                    comm.recv(all.slice(4, 4), 2, stream);
                });
    }

    /** Rank 1 does its part and leaves, while rank 0 waits for rank 2. */
    private void early() throws InterruptedException {
        data.copyFrom(new float[] {comm.rank(), 1, 2, 3});
        all.slice(0, 4).copyFrom(new float[] {0, 1, 2, 3});
        if (comm.rank() == 0) {
            Group.run(
                    comm,
                    () -> {
                        comm.recv(all.slice(4, 4), 1, stream);
                        comm.recv(all.slice(8, 4), 2, stream);
                    });
        } else {
            late();
            comm.send(data, 0, stream);
        }
        float[] received = floats(all);
        late();
        comm.gather(data, all, 0, stream);
        if (comm.rank() == 0) {
            say(0, "has the same: " + Arrays.equals(received, floats(all)));
        }
    }

    private static float[] floats(Buffer b) {
        float[] values = new float[(int) b.count()];
        b.copyTo(values);
        return values;
    }

    /** Rank 2 is late, by more than the time until ranks ask each other. */
    private void late() throws InterruptedException {
        if (comm.rank() == 2) {
            Thread.sleep(7000);
        }
    }

    /** Whether memory is given back when its buffer is closed, after an operation and an abort. */
    private void reduce(Communicator c, boolean abort, boolean givenBack) throws Exception {
        leave(c, abort, givenBack, (b, s) -> c.allReduce(b, ReduceOp.SUM, s));
    }

    private void receive(Communicator c) throws Exception {
        leave(
                c,
                true,
                false,
                (b, s) ->
                        Group.run(
                                c,
                                () -> {
                                    c.send(data, 1, s);
                                    c.recv(b, 1, s);
                                }));
    }

    private static void leave(
            Communicator c, boolean abort, boolean givenBack, BiConsumer<Buffer, Stream> operation)
            throws Exception {
        AtomicBoolean released = new AtomicBoolean();
        MemorySegment memory = Arena.global().allocate(1 << 20, 64);
        Buffer whole = HostBuffer.owning(memory, DataType.UINT8, 1 << 20, () -> released.set(true));
        AtomicBoolean ended = new AtomicBoolean();
        Buffer lent = whole.lease(4096, DataType.FLOAT32, 1 << 10, () -> ended.set(true));
        try (Stream beside = Device.host().newStream()) {
            operation.accept(lent.slice(8, 1000), beside);
            if (abort) {
                Thread.sleep(300);
                c.abort("nobody comes");
            }
            beside.synchronize();
            say(c.rank(), abort ? "was not aborted" : "reduced");
        } catch (RankFailedException e) {
            say(c.rank(), "left it: " + e.getMessage());
        }
        lent.close();
        whole.close();
        if (released.get() != givenBack || ended.get() != givenBack) {
            throw new AssertionError("given back: " + released + ", " + ended);
        }
        say(c.rank(), givenBack ? "gave memory back" : "kept memory");
    }

    private void interruptSoon() {
        Thread waiting = Thread.currentThread();
        Thread.ofPlatform()
                .daemon()
                .start(() -> {
                    try {
                        Thread.sleep(300);
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                    waiting.interrupt();
                });
    }

    private void reduce() {
        began = System.nanoTime();
        comm.allReduce(data, ReduceOp.SUM, stream);
    }

    private static void signal(String name) throws IOException, InterruptedException {
        String pid = Long.toString(ProcessHandle.current().pid());
        new ProcessBuilder("kill", "-" + name, pid).start().waitFor();
    }

    /** What the JVM needs of signals: SIGSEGV for null checks, SIGTERM for an orderly end. */
    private void signals() throws Exception {
        int caught = 0;
        for (int i = 0; i < 200_000; i++) {
            try {
                caught += length(i % 1000 == 0 ? null : new int[1]);
            } catch (NullPointerException e) {
                caught += 2;
            }
        }
        say(comm.rank(), "counted " + caught);
        Runtime.getRuntime()
                .addShutdownHook(new Thread(() -> say(comm.rank(), "ran its shutdown hook")));
        comm.barrier(stream);
        signal("TERM");
        Thread.sleep(LONG);
    }

    @SuppressWarnings("NullAway") // the point of it
    private static int length(int @Nullable [] array) {
        return array.length;
    }
}

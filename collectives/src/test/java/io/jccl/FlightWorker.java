package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/**
 * A rank, or with JCCL_ENGINE=threads three of them, of which one falls behind. Prints what each
 * gets to know of it, with {@code |} for the ends of lines.
 */
final class FlightWorker {
    private static final int COUNT = 1000;

    private FlightWorker() {}

    /**
     * Runs one rank, or three.
     *
     * @param args what the victim does, timeout in seconds, the victim's rank
     * @throws Exception an error nobody expects
     */
    public static void main(String[] args) throws Exception {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Integer.parseInt(args[1])));
        int victim = Integer.parseInt(args[2]);
        if (args[0].equals("slow")) {
            failSlowly(options);
            return;
        }
        if (!"threads".equals(System.getenv("JCCL_ENGINE"))) {
            Workers.meet(device());
            run(Communicator.fromEnvironment(device(), options), args[0], victim);
            return;
        }
        List<Thread> threads = new ArrayList<>();
        for (Communicator c : Communicator.local(3, options)) {
            threads.add(
                    Thread.ofPlatform()
                            .daemon(c.rank() == victim)
                            .name("rank-" + c.rank())
                            .start(() -> run(c, args[0], victim)));
        }
        for (int r = 0; r < threads.size(); r++) {
            if (r != victim) {
                threads.get(r).join();
            }
        }
    }

    private static Device device() {
        return "nccl".equals(System.getenv("JCCL_ENGINE"))
                ? Cuda.device(Integer.parseInt(System.getenv("LOCAL_RANK")))
                : Device.host();
    }

    private static void run(Communicator comm, String what, int victim) {
        try (comm) {
            boolean falls = comm.rank() == victim;
            if (!what.equals("never")) {
                for (int i = 0; i < 3; i++) {
                    work(comm);
                }
            }
            say("RUNNING " + comm.rank());
            if (what.equals("cross")) {
                cross(comm, falls);
            } else if (what.equals("twice")) {
                failInAnother(comm, falls);
                work(comm);
                failInAnother(comm, falls);
                say("LAST " + comm.rank() + " " + comm.history().last());
            } else if (falls && (what.equals("skip") || what.equals("never"))) {
                dawdle();
            } else if (falls && what.equals("other")) {
                wrongTurn(comm);
            } else {
                while (true) {
                    work(comm);
                }
            }
        } catch (RuntimeException e) {
            say(
                    "ERROR "
                            + comm.rank()
                            + " "
                            + e.getClass().getSimpleName()
                            + " "
                            + String.valueOf(e.getMessage()).replace('\n', '|'));
            say("HISTORY " + comm.rank() + " " + comm.history().toText().replace('\n', '|'));
        }
        say("CLOSED " + comm.rank());
    }

    /** Two communicators in another order. */
    private static void cross(Communicator comm, boolean falls) {
        try (Communicator other = Objects.requireNonNull(comm.split(0, comm.rank()))) {
            work(falls ? other : comm);
            work(falls ? comm : other);
        }
    }

    /** The ranks call different operations; this communicator goes on. */
    private static void failInAnother(Communicator comm, boolean falls) {
        try (Communicator other = Objects.requireNonNull(comm.split(0, comm.rank()))) {
            if (falls) {
                wrongTurn(other);
            } else {
                work(other);
            }
        } catch (JcclException e) {
            say("FAILED " + comm.rank() + " " + e.getClass().getSimpleName());
        }
    }

    /** While a history is being written, to a file that nobody reads yet, others come and go. */
    private static void failSlowly(CommunicatorOptions options) throws Exception {
        List<Communicator> pair = Communicator.local(2, options);
        FlightHistory history = pair.getFirst().history();
        Path file =
                Path.of(
                        System.getenv("JCCL_FLIGHT_DIR"),
                        ".flight-%s-rank0.json.%s"
                                .formatted(
                                        history.communicator().replace('/', '_'),
                                        history.process()));
        Files.createDirectories(file.getParent());
        new ProcessBuilder("mkfifo", file.toString()).inheritIO().start().waitFor();
        pair.getLast().abort("the data is bad");
        Thread first =
                Thread.ofPlatform()
                        .start(() -> run(pair.getFirst(), "loop", pair.getLast().rank()));
        while (!Arrays.toString(first.getStackTrace()).contains("FlightDump.write")) {
            Thread.sleep(1);
        }
        Communicator.runLocal(1, FlightWorker::work);
        say("OTHER " + first.isAlive());
        say("READ " + Files.readString(file));
        first.join();
        pair.getLast().close();
    }

    private static void say(String line) {
        System.out.println(line);
    }

    private static void work(Communicator comm) {
        Stream stream = comm.device().defaultStream();
        try (Buffer b = comm.device().allocate(DataType.INT32, COUNT)) {
            comm.allReduce(b, ReduceOp.SUM, stream);
            stream.synchronize();
        }
    }

    private static void wrongTurn(Communicator comm) {
        Stream stream = comm.device().defaultStream();
        try (Buffer b = comm.device().allocate(DataType.INT32, COUNT)) {
            comm.broadcast(b, 0, stream);
            stream.synchronize();
        }
    }

    private static void dawdle() {
        try {
            Thread.sleep(600_000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}

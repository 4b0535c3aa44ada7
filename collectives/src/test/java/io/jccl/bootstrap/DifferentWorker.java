package io.jccl.bootstrap;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;

/** A rank that may differ from the others; prints what it gets. */
final class DifferentWorker {
    private static final Duration LONG = Duration.ofMinutes(2);

    private DifferentWorker() {}

    /**
     * Takes an engine, and the number of the rank that differs with a version or a property's name
     * and value, or a file: then it stays until that is there.
     */
    public static void main(String[] args) throws InterruptedException {
        int rank = Workers.rank(System.getenv());
        Path until = args.length == 2 ? Path.of(args[1]) : null;
        if (args.length > 2 && rank == Integer.parseInt(args[1])) {
            if (args.length == 3) {
                Release.pretend(args[2]);
            } else {
                System.setProperty(args[2], args[3]);
            }
        }
        CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(LONG);
        try (Communicator comm =
                args[0].equals("mpi")
                        ? Communicator.mpi(options)
                        : Communicator.fromEnvironment(options)) {
            System.out.println("RANK " + rank + " joined as " + comm.rank());
            System.out.flush();
            long deadline = System.nanoTime() + LONG.toNanos();
            while (until != null && !Files.exists(until) && System.nanoTime() < deadline) {
                Thread.sleep(20);
            }
        } catch (JcclException e) {
            System.out.println("RANK " + rank + " caught " + e.getMessage());
            System.out.flush();
            // The others are to print it too before a launcher ends them.
            Thread.sleep(1500);
            System.exit(3);
        }
    }
}

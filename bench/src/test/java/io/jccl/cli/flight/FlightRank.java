package io.jccl.cli.flight;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.time.Duration;

/** One rank of a run that is recorded: it may come late, or take a wrong turn. */
final class FlightRank {
    static final int ROUNDS = 40;

    /** How long the late rank sleeps before each allReduce. */
    static final long LATE_MILLIS = 15;

    private FlightRank() {}

    /**
     * Runs a rank as a process.
     *
     * @param args what happens, and to which rank
     */
    public static void main(String[] args) {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(20));
        try (Communicator c = Communicator.fromEnvironment(options)) {
            run(c, args[0], Integer.parseInt(args[1]));
        } catch (JcclException e) {
            System.out.println("FAILED " + e.getMessage());
        }
    }

    /**
     * Runs a rank.
     *
     * @param c the rank
     * @param what "fine", "late", "turn" or "skip"
     * @param victim to which rank it happens
     */
    static void run(Communicator c, String what, int victim) {
        Stream s = c.device().defaultStream();
        boolean struck = c.rank() == victim;
        try (Buffer a = c.device().allocate(DataType.FLOAT32, 50_000);
                Buffer b = c.device().allocate(DataType.FLOAT32, 50_000)) {
            for (int i = 0; i < ROUNDS; i++) {
                if (struck && what.equals("late")) {
                    sleep(LATE_MILLIS);
                }
                if (i == ROUNDS / 2 && struck && what.equals("skip")) {
                    throw new JcclException("leaves");
                }
                if (i == ROUNDS / 2 && struck && what.equals("turn")) {
                    c.reduce(a, b, ReduceOp.SUM, 0, s);
                } else {
                    c.allReduce(a, b, ReduceOp.SUM, s);
                }
                int to = (c.rank() + 1) % c.size();
                int from = (c.rank() + c.size() - 1) % c.size();
                Group.run(
                        c,
                        () -> {
                            c.send(a, to, s);
                            c.recv(b, from, s);
                        });
            }
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}

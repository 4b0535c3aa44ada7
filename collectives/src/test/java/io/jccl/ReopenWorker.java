package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.time.Duration;

/** A rank as a process that joins and leaves the same job many times. */
final class ReopenWorker {
    private ReopenWorker() {}

    /**
     * Runs one rank.
     *
     * @param args how often to join
     */
    public static void main(String[] args) {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(20));
        int times = Integer.parseInt(args[0]);
        for (int i = 0; i < times; i++) {
            try (Communicator comm = Communicator.fromEnvironment(options);
                    Buffer buffer = comm.device().allocate(DataType.INT64, 1000)) {
                buffer.setLong(999, i + comm.rank());
                comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
                int n = comm.size();
                long expected = (long) n * i + n * (n - 1L) / 2;
                if (buffer.getLong(999) != expected) {
                    throw new IllegalStateException("round " + i + " sum " + buffer.getLong(999));
                }
            }
        }
        System.out.println("DONE");
    }
}

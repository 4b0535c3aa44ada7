package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.locks.LockSupport;

/**
 * A rank as a process that runs into trouble, or sees others do. Prints what happens to it. {@code
 * JCCL_ENGINE=nccl} puts it on a GPU.
 */
final class FaultWorker {
    private static final long DENSE_NANOS = 200_000_000;
    private static final long SPARSE_NANOS = 2_000_000;
    private static final int COUNT = 50_000;

    /** Twice what a stream takes. */
    private static final int FULL = 2_000;

    private static long dense;

    private FaultWorker() {}

    /**
     * Runs one rank.
     *
     * @param args what to do, timeout in seconds, with a plus sign if it begins when all ranks run,
     *     and a number that depends on what to do
     * @throws Exception an error nobody expects
     */
    public static void main(String[] args) throws Exception {
        if (args[1].startsWith("+")) {
            Workers.meet(device());
        }
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Integer.parseInt(args[1])));
        long start = System.nanoTime();
        try (Communicator comm = Communicator.fromEnvironment(device(), options)) {
            start = System.nanoTime();
            switch (args[0]) {
                case "hello" -> allReduce(comm, 3);
                case "allReduce" -> allReduce(comm, Integer.MAX_VALUE);
                case "barrier" -> barrier(comm);
                case "sendRecv" -> sendRecv(comm);
                case "stream" -> stream(comm);
                case "ahead" -> ahead(comm);
                case "early" -> early(comm, Integer.parseInt(args[2]));
                case "late" -> late(comm, Integer.parseInt(args[2]));
                case "exit" -> exit(comm, Integer.parseInt(args[2]));
                case "gpus" -> gpus(options);
                case "threads" -> threads(options, Integer.parseInt(args[2]));
                case "allocate" -> allocate(comm, Long.parseLong(args[2]));
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println("OK");
        } catch (RuntimeException e) {
            long millis = (System.nanoTime() - start) / 1_000_000;
            System.out.println(
                    String.format(
                            Locale.ROOT,
                            "ERROR %s %d %s",
                            e.getClass().getSimpleName(),
                            millis,
                            String.valueOf(e.getMessage()).replace('\n', ' ')));
            e.printStackTrace(System.out);
        }
        System.out.println("CLOSED");
    }

    private static Device device() {
        return "nccl".equals(System.getenv("JCCL_ENGINE"))
                ? Cuda.device(Integer.parseInt(System.getenv("LOCAL_RANK")))
                : Device.host();
    }

    private static void allReduce(Communicator comm, int times) {
        Stream stream = comm.device().defaultStream();
        try (Buffer buffer = comm.device().allocate(DataType.INT32, COUNT);
                Buffer mine = Device.host().allocate(DataType.INT32, COUNT);
                Buffer sum = Device.host().allocate(DataType.INT32, COUNT)) {
            for (int i = 0; i < times; i++) {
                long at = i % COUNT;
                mine.zero();
                mine.setLong(at, 1 + comm.rank());
                stream.copy(mine, buffer);
                comm.allReduce(buffer, ReduceOp.SUM, stream);
                stream.copy(buffer, sum);
                stream.synchronize();
                long expected = comm.size() * (comm.size() + 1L) / 2;
                if (i < 3 && sum.getLong(at) != expected) {
                    throw new IllegalStateException("sum is " + sum.getLong(at));
                }
                progress(i);
            }
        }
    }

    /** After a moment the rounds are less dense: it may take seconds until a fault is noticed. */
    private static void progress(int i) {
        if (i == 20) {
            System.out.println("RUNNING");
            dense = System.nanoTime() + DENSE_NANOS;
        } else if (i > 20 && System.nanoTime() > dense) {
            LockSupport.parkNanos(SPARSE_NANOS);
        }
    }

    private static void barrier(Communicator comm) {
        for (int i = 0; ; i++) {
            barrierOnce(comm);
            progress(i);
        }
    }

    /** Two ranks as threads of this process, on a GPU each. */
    private static void gpus(CommunicatorOptions options) {
        Communicator.runLocal(
                List.of(Cuda.device(0), Cuda.device(1)),
                options,
                comm -> allReduce(comm, Integer.MAX_VALUE));
    }

    /** Ranks as threads, more than this process can have. */
    private static void threads(CommunicatorOptions options, int ranks) {
        Communicator.runLocal(ranks, options, FaultWorker::barrierOnce);
    }

    private static void barrierOnce(Communicator comm) {
        comm.barrier(comm.device().defaultStream());
        comm.device().defaultStream().synchronize();
    }

    private static void sendRecv(Communicator comm) {
        Stream stream = comm.device().defaultStream();
        int n = comm.size();
        try (Buffer out = comm.device().allocate(DataType.INT8, COUNT);
                Buffer in = comm.device().allocate(DataType.INT8, COUNT)) {
            for (int i = 0; ; i++) {
                Group.run(
                        comm,
                        () -> {
                            comm.send(out, (comm.rank() + 1) % n, stream);
                            comm.recv(in, (comm.rank() + n - 1) % n, stream);
                        });
                stream.synchronize();
                progress(i);
            }
        }
    }

    private static void stream(Communicator comm) {
        try (Stream stream = comm.device().newStream();
                Buffer buffer = comm.device().allocate(DataType.FLOAT32, COUNT)) {
            for (int i = 0; ; i++) {
                comm.allReduce(buffer, ReduceOp.MAX, stream);
                comm.allGather(buffer.slice(0, (long) (COUNT / comm.size()) * comm.size()), stream);
                stream.synchronize();
                progress(i);
            }
        }
    }

    /** Never waits, so that the stream is full of operations after the first thousand. */
    private static void ahead(Communicator comm) {
        try (Stream stream = comm.device().newStream();
                Buffer buffer = comm.device().allocate(DataType.FLOAT32, COUNT)) {
            for (int i = 0; ; i++) {
                comm.allReduce(buffer, ReduceOp.MAX, stream);
                if (i == FULL) {
                    System.out.println("RUNNING");
                }
            }
        }
    }

    /** One rank leaves in good order while the others go on. */
    private static void early(Communicator comm, int leaver) throws IOException {
        if (!leaves(comm, leaver)) {
            barrierOnce(comm);
        }
    }

    /** One rank ends its JVM without a word. */
    private static void exit(Communicator comm, int leaver) throws IOException {
        if (leaves(comm, leaver)) {
            System.exit(3);
        }
        barrierOnce(comm);
    }

    /** One rank calls the first operation when it is told to. */
    private static void late(Communicator comm, int late) throws IOException {
        if (comm.rank() == late) {
            awaitEnd();
        } else {
            System.out.println("GOES ON");
        }
        allReduce(comm, 3);
    }

    /**
     * Lets one rank leave when it is told to: when it is through the last allReduce, the others may
     * still be in it.
     */
    private static boolean leaves(Communicator comm, int leaver) throws IOException {
        allReduce(comm, 3);
        if (comm.rank() != leaver) {
            System.out.println("GOES ON");
            return false;
        }
        awaitEnd();
        return true;
    }

    private static void awaitEnd() throws IOException {
        int end = System.in.read();
        if (end >= 0) {
            throw new IllegalStateException("read " + end + ", expected the end of the input");
        }
    }

    private static void allocate(Communicator comm, long bytes) {
        try (Buffer buffer = comm.device().allocate(DataType.UINT8, bytes)) {
            System.out.println("ALLOCATED " + buffer.count());
        } catch (JcclException e) {
            System.out.println("REFUSED " + e.getMessage());
        }
        // what was not to be had is no reason to stop
        allReduce(comm, 3);
    }
}

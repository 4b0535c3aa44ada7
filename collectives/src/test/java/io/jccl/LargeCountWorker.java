package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.host.HostBuffer;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/** Two ranks with more elements than an int counts; compares every one of them. */
final class LargeCountWorker {
    /** More than a C int, and than a Java array, by a few. */
    private static final long MANY = (1L << 31) + 5;

    /** Two blocks of so many are more. */
    private static final long BLOCK = (1L << 30) + 3;

    private static final int CHUNK = 1 << 20;
    private static final Duration LONG = Duration.ofMinutes(10);

    private final Communicator comm;
    private final Stream stream;
    private final String what;
    private final byte[] chunk = new byte[CHUNK];

    private LargeCountWorker(Communicator comm, String what) {
        this.comm = comm;
        this.stream = comm.device().defaultStream();
        this.what = what;
    }

    /** Takes {@code threads}, {@code processes} or {@code mpi}, and an operation. */
    public static void main(String[] args) {
        CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(LONG);
        if (args[0].equals("threads")) {
            Communicator.runLocal(2, comm -> new LargeCountWorker(comm, args[1]).run());
            return;
        }
        try (Communicator comm =
                args[0].equals("mpi")
                        ? Communicator.mpi(options)
                        : Communicator.fromEnvironment(options)) {
            new LargeCountWorker(comm, args[1]).run();
        }
    }

    private void run() {
        int me = comm.rank();
        int other = 1 - me;
        switch (what) {
            case "allReduce" -> {
                try (Buffer b = allocate(MANY)) {
                    fill(b, 0, MANY, me);
                    comm.allReduce(b, ReduceOp.SUM, stream);
                    check(b, 0, MANY, 0, 1);
                }
            }
            case "broadcast" -> {
                try (Buffer b = allocate(MANY)) {
                    fill(b, 0, MANY, me);
                    comm.broadcast(b, 1, stream);
                    check(b, 0, MANY, 1, -1);
                }
            }
            case "sendRecv" -> {
                try (Buffer b = allocate(MANY)) {
                    fill(b, 0, MANY, me);
                    if (me == 0) {
                        comm.send(b, 1, stream);
                    } else {
                        comm.recv(b, 0, stream);
                    }
                    check(b, 0, MANY, 0, -1);
                }
            }
            case "allGather", "allGatherOfManyEach" -> {
                long block = what.equals("allGather") ? BLOCK : MANY;
                try (Buffer b = allocate(2 * block)) {
                    fill(b, me * block, block, me);
                    comm.allGather(b, stream);
                    check(b, 0, block, 0, -1);
                    check(b, block, block, 1, -1);
                }
            }
            case "allToAll" -> {
                try (Buffer b = allocate(2 * BLOCK);
                        Buffer r = allocate(2 * BLOCK)) {
                    // A block is told by who sends it and who gets it.
                    fill(b, 0, BLOCK, 2 * me);
                    fill(b, BLOCK, BLOCK, 2 * me + 1);
                    comm.allToAll(b, r, stream);
                    check(r, 0, BLOCK, me, -1);
                    check(r, BLOCK, BLOCK, 2 + me, -1);
                }
            }
            default -> throw new IllegalArgumentException(what);
        }
        System.out.println("RANK " + me + " of 2 beside " + other + " checked " + what);
    }

    private Buffer allocate(long count) {
        return comm.device().allocate(DataType.INT8, count);
    }

    /** One mebibyte of a block; with a second tag, of the sum of two blocks. */
    private void expect(long at, int tag, int second) {
        int own = (int) (at >>> 20) * 13 + tag * 5;
        int more = second < 0 ? 0 : (int) (at >>> 20) * 13 + second * 5;
        for (int i = 0; i < CHUNK; i++) {
            int pattern = i * 31 + (i >>> 8);
            chunk[i] = (byte) (pattern + own + (second < 0 ? 0 : pattern + more));
        }
    }

    private void fill(Buffer b, long from, long count, int tag) {
        MemorySegment memory = ((HostBuffer) b).segment();
        for (long at = 0; at < count; at += CHUNK) {
            expect(at, tag, -1);
            long m = Math.min(CHUNK, count - at);
            MemorySegment.copy(MemorySegment.ofArray(chunk), 0, memory, from + at, m);
        }
    }

    private void check(Buffer b, long from, long count, int tag, int second) {
        MemorySegment memory = ((HostBuffer) b).segment();
        for (long at = 0; at < count; at += CHUNK) {
            expect(at, tag, second);
            long m = Math.min(CHUNK, count - at);
            long wrong =
                    memory.asSlice(from + at, m)
                            .mismatch(MemorySegment.ofArray(chunk).asSlice(0, m));
            if (wrong >= 0) {
                throw new IllegalStateException(
                        what
                                + " on rank "
                                + comm.rank()
                                + ": element "
                                + (from + at + wrong)
                                + " is "
                                + b.get(from + at + wrong)
                                + ", expected "
                                + chunk[(int) wrong]);
            }
        }
    }
}

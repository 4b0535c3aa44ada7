package io.jccl.bench;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.function.LongUnaryOperator;

/**
 * One rank of a long run of random operations: operation, size and stream are drawn identically on
 * all ranks, each result is compared element by element, and the process's memory, threads and open
 * files are sampled occasionally.
 */
public final class Soak implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofMinutes(5);

    /** One in this many operations runs on a communicator that is split off and closed again. */
    private static final int SPLIT_EVERY = 5_000;

    private static final int SMALL = 64;
    private static final int LARGE = 16_384;

    /** One in this many operations is large. */
    private static final int LARGE_EVERY = 500;

    /** The operations, named in messages. */
    private enum Kind {
        BROADCAST,
        SCATTER,
        GATHER,
        REDUCE,
        ALL_REDUCE,
        ALL_REDUCE_IN_PLACE,
        ALL_GATHER,
        ALL_GATHERV,
        REDUCE_SCATTER,
        ALL_TO_ALL,
        ALL_TO_ALLV,
        RING,
        BARRIER
    }

    /**
     * Resources of the process.
     *
     * @param operations operations run until then
     * @param resident bytes of memory, after a garbage collection
     * @param threads of the process
     * @param files open ones
     */
    public record Reading(long operations, long resident, int threads, int files) {
        public static Reading take(long operations) {
            System.gc();
            try {
                long resident = 0;
                int threads = 0;
                for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                    String[] words = line.split("\\s+", -1);
                    switch (words[0]) {
                        case "VmRSS:" -> resident = Long.parseLong(words[1]) << 10;
                        case "Threads:" -> threads = Integer.parseInt(words[1]);
                        default -> {}
                    }
                }
                try (var files = Files.list(Path.of("/proc/self/fd"))) {
                    // Includes the one used for the listing.
                    return new Reading(operations, resident, threads, (int) files.count() - 1);
                }
            } catch (IOException e) {
                throw new UncheckedIOException("/proc cannot be read", e);
            }
        }
    }

    private final Communicator comm;
    private final int n;
    private final int me;
    private final SplittableRandom random;
    private final Stream inline;
    private final Stream beside;
    private final List<Buffer> buffers = new ArrayList<>();
    private final Buffer send;
    private final Buffer recv;
    private final Buffer staging;
    private final MemorySegment memory;
    private final boolean splits;

    /**
     * Creates the operations of a rank.
     *
     * @param comm all ranks
     * @param seed the same on all ranks
     * @param splits whether the communicator is split now and then
     */
    public Soak(Communicator comm, long seed, boolean splits) {
        this.splits = splits;
        this.comm = comm;
        this.n = comm.size();
        this.me = comm.rank();
        this.random = new SplittableRandom(seed);
        this.inline = comm.device().defaultStream();
        this.beside = comm.device().newStream();
        long most = (long) LARGE * n + n;
        this.send = add(comm.device(), most);
        this.recv = add(comm.device(), most);
        // A copy to or from other memory waits for its stream, and keeps all threads out of the
        // GPU.
        this.staging =
                comm.device().kind() == Device.Kind.CUDA
                        ? add(Cuda.pinned(DataType.INT64, most))
                        : add(Device.host(), most);
        this.memory = staging.asSegment();
    }

    private Buffer add(Device device, long count) {
        return add(device.allocate(DataType.INT64, count));
    }

    private Buffer add(Buffer b) {
        buffers.add(b);
        return b;
    }

    /** Runs some more operations. */
    public void run(long from, long to) {
        for (long number = from; number < to; number++) {
            if (splits && number % SPLIT_EVERY == SPLIT_EVERY - 1) {
                try (Communicator half = comm.split(me % 2, me)) {
                    if (half != null) {
                        one(half, number);
                    }
                }
            } else {
                one(comm, number);
            }
        }
    }

    /** An input value: small enough that sums are exact, different for each index. */
    private static long value(int rank, long at, long number) {
        return (rank * 31L + at * 7 + number) & 0xFFFF;
    }

    private static long sum(int ranks, int[] members, long at, long number) {
        long sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += value(members[r], at, number);
        }
        return sum;
    }

    private void one(Communicator c, long number) {
        int size = c.size();
        int own = c.rank();
        int[] world = new int[size];
        for (int r = 0; r < size; r++) {
            world[r] = size == n ? r : 2 * r + me % 2;
        }
        // Halves differ in size, and all ranks must draw the same random numbers.
        Kind kind = Kind.values()[random.nextInt(Kind.values().length)];
        int count = 1 + random.nextInt(random.nextInt(LARGE_EVERY) == 0 ? LARGE : SMALL);
        int root = random.nextInt(n) % size;
        Stream stream = random.nextInt(4) == 0 ? beside : inline;
        int block = count;
        long all = (long) block * size;
        Check check = new Check(kind, number, stream);
        boolean blocks =
                switch (kind) {
                    case SCATTER, REDUCE_SCATTER, ALL_TO_ALL, ALL_TO_ALLV -> true;
                    default -> false;
                };
        long sent = kind == Kind.BARRIER ? 0 : blocks ? all : block;
        Buffer in = send.slice(0, Math.max(sent, 1));
        for (long i = 0; i < sent; i++) {
            memory.setAtIndex(ValueLayout.JAVA_LONG, i, value(me, i, number));
        }
        if (sent > 0) {
            stream.copy(staging.slice(0, sent), in);
        }
        switch (kind) {
            case BROADCAST -> {
                c.broadcast(in, recv.slice(0, block), root, stream);
                check.equal(block, i -> value(world[root], i, number));
            }
            case SCATTER -> {
                c.scatter(in, recv.slice(0, block), root, stream);
                long at = (long) own * block;
                check.equal(block, i -> value(world[root], at + i, number));
            }
            case GATHER -> {
                c.gather(in, recv.slice(0, all), root, stream);
                check.equal(
                        own == root ? all : 0,
                        i -> value(world[(int) (i / block)], i % block, number));
            }
            case REDUCE -> {
                c.reduce(in, recv.slice(0, block), ReduceOp.SUM, root, stream);
                check.equal(own == root ? block : 0, i -> sum(size, world, i, number));
            }
            case ALL_REDUCE -> {
                c.allReduce(in, recv.slice(0, block), ReduceOp.SUM, stream);
                check.equal(block, i -> sum(size, world, i, number));
            }
            case ALL_REDUCE_IN_PLACE -> {
                c.allReduce(in, ReduceOp.SUM, stream);
                check.equal(send, block, i -> sum(size, world, i, number));
            }
            case ALL_GATHER -> {
                c.allGather(in, recv.slice(0, all), stream);
                check.equal(all, i -> value(world[(int) (i / block)], i % block, number));
            }
            case ALL_GATHERV -> {
                long[] counts = new long[size];
                long[] displs = places(size, block, counts);
                c.allGatherv(in, recv.slice(0, (long) (block + 1) * size), counts, displs, stream);
                check.blocks(block, size, (r, i) -> value(world[r], i, number));
            }
            case REDUCE_SCATTER -> {
                c.reduceScatter(in, recv.slice(0, block), ReduceOp.SUM, stream);
                long at = (long) own * block;
                check.equal(block, i -> sum(size, world, at + i, number));
            }
            case ALL_TO_ALL -> {
                c.allToAll(in, recv.slice(0, all), stream);
                long at = (long) own * block;
                check.equal(all, i -> value(world[(int) (i / block)], at + i % block, number));
            }
            case ALL_TO_ALLV -> {
                long[] counts = new long[size];
                long[] displs = places(size, block, counts);
                long[] packed = new long[size];
                for (int r = 0; r < size; r++) {
                    packed[r] = (long) r * block;
                }
                Buffer out = recv.slice(0, (long) (block + 1) * size);
                c.allToAllv(in, counts, packed, out, counts, displs, stream);
                long at = (long) own * block;
                check.blocks(block, size, (r, i) -> value(world[r], at + i, number));
            }
            case RING -> {
                if (size == 1) {
                    stream.synchronize(PATIENCE);
                    return; // a half of three ranks
                }
                int previous = (own + size - 1) % size;
                Group.run(
                        c,
                        () -> {
                            c.send(in, (own + 1) % size, stream);
                            c.recv(recv.slice(0, block), previous, stream);
                        });
                check.equal(block, i -> value(world[previous], i, number));
            }
            case BARRIER -> {
                c.barrier(stream);
                stream.synchronize(PATIENCE);
            }
        }
    }

    /** Blocks with a gap of one element between them. */
    private static long[] places(int size, int block, long[] counts) {
        long[] displs = new long[size];
        for (int r = 0; r < size; r++) {
            counts[r] = block;
            displs[r] = (long) r * (block + 1);
        }
        return displs;
    }

    private interface Expected {
        long of(int rank, long at);
    }

    /** Waits for an operation and compares its result. */
    private final class Check {
        private final Kind kind;
        private final long number;
        private final Stream stream;

        Check(Kind kind, long number, Stream stream) {
            this.kind = kind;
            this.number = number;
            this.stream = stream;
        }

        void blocks(int block, int size, Expected expected) {
            long stride = block + 1L;
            fetch(recv, stride * size - 1);
            for (int r = 0; r < size; r++) {
                for (long i = 0; i < block; i++) {
                    compare(r * stride + i, expected.of(r, i));
                }
            }
        }

        void equal(long count, LongUnaryOperator expected) {
            equal(recv, count, expected);
        }

        void equal(Buffer from, long count, LongUnaryOperator expected) {
            fetch(from, count);
            for (long i = 0; i < count; i++) {
                compare(i, expected.applyAsLong(i));
            }
        }

        private void fetch(Buffer from, long count) {
            if (count > 0) {
                stream.copy(from.slice(0, count), staging.slice(0, count));
            }
            stream.synchronize(PATIENCE);
        }

        private void compare(long at, long expected) {
            long found = memory.getAtIndex(ValueLayout.JAVA_LONG, at);
            if (found != expected) {
                throw new IllegalStateException(
                        format(
                                "operation %s, %s: element %s on rank %s is %s, expected %s",
                                number, kind, at, me, found, expected));
            }
        }
    }

    @Override
    public void close() {
        beside.close();
        buffers.reversed().forEach(Buffer::close);
    }
}

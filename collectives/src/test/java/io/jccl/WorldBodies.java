package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.host.HostEngine;
import io.jccl.error.JcclException;
import io.jccl.testkit.Messages;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * What three ranks do, as threads or as processes. Also a main class: one rank of them, each body
 * with a world of its own.
 */
final class WorldBodies {
    static final int RANKS = 3;
    static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(30));

    private WorldBodies() {}

    /** Bodies by name. */
    static Map<String, Communicator.RankBody> all() {
        Map<String, Communicator.RankBody> bodies = new LinkedHashMap<>();
        bodies.put("splitOrdersByKeyThenRank", WorldBodies::splitOrdersByKeyThenRank);
        bodies.put("splitsMayBeSplit", WorldBodies::splitsMayBeSplit);
        bodies.put("partsOutliveTheirParent", WorldBodies::partsOutliveTheirParent);
        bodies.put("aBrokenPartLeavesItsParent", WorldBodies::aBrokenPartLeavesItsParent);
        bodies.put("manySplits", comm -> manySplits(comm, 30));
        bodies.put("shrinkLeavesRanksOut", WorldBodies::shrinkLeavesRanksOut);
        bodies.put("shrinkGoesOnAfterAFailure", WorldBodies::shrinkGoesOnAfterAFailure);
        bodies.put("shrinkGivesUp", WorldBodies::shrinkGivesUp);
        bodies.put("shrinkNoticesARankThatHasLeft", WorldBodies::shrinkNoticesARankThatHasLeft);
        bodies.put("buffersDoNotOverlap", WorldBodies::buffersDoNotOverlap);
        bodies.put("buffersOutliveTheCommunicator", WorldBodies::buffersOutliveTheCommunicator);
        bodies.put("messagesKeepTheirOrder", WorldBodies::messagesKeepTheirOrder);
        bodies.put("messagesOutliveTheirSender", WorldBodies::messagesOutliveTheirSender);
        bodies.put("oneStreamIsDrivenByManyBuffers", comm -> oneStreamIsDriven(comm, 60));
        return bodies;
    }

    /** Bodies that take long, by name; those whose name is one of {@link #all} do the same more. */
    static Map<String, Communicator.RankBody> longer() {
        Map<String, Communicator.RankBody> bodies = new LinkedHashMap<>();
        bodies.put("manySplits", comm -> manySplits(comm, 100));
        bodies.put("freedMemoryIsReused", WorldBodies::freedMemoryIsReused);
        bodies.put("oneStreamIsDrivenByManyBuffers", comm -> oneStreamIsDriven(comm, 200));
        return bodies;
    }

    private static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    private static void checkEquals(long expected, long actual, String what) {
        check(expected == actual, what + " is " + actual + ", expected " + expected);
    }

    private static Communicator part(Communicator comm, int colour, int key) {
        Communicator part = comm.split(colour, key);
        if (part == null) {
            throw new AssertionError("split gave null for colour " + colour);
        }
        return part;
    }

    /** Sums one number over all ranks of a communicator. */
    private static long sum(Communicator comm, long mine) {
        try (Buffer buffer = comm.device().allocate(DataType.INT64, 1)) {
            buffer.setLong(0, mine);
            comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
            return buffer.getLong(0);
        }
    }

    private static void splitOrdersByKeyThenRank(Communicator comm) {
        int me = comm.rank();
        int[][] keys = {
            {0, 0, 0}, {2, 1, 0}, {5, -5, 5}, {Integer.MAX_VALUE, Integer.MIN_VALUE, 0}
        };
        int[][] ranks = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}};
        for (int i = 0; i < keys.length; i++) {
            try (Communicator part = part(comm, Integer.MAX_VALUE, keys[i][me])) {
                checkEquals(3, part.size(), "size");
                checkEquals(ranks[i][me], part.rank(), "rank in row " + i);
                checkEquals(3, sum(part, part.rank()), "sum of ranks");
            }
        }
        Communicator none = comm.split(me == 1 ? -7 : 3, 0);
        check((none == null) == (me == 1), "a negative colour joins none");
        if (none != null) {
            try (none) {
                checkEquals(2, none.size(), "size without rank 1");
                checkEquals(me / 2, none.rank(), "rank without rank 1");
                checkEquals(2, sum(none, me), "sum without rank 1");
            }
        }
        check(comm.split(-1, 0) == null, "nobody joins");
        try (Communicator alone = part(comm, me, 0)) {
            checkEquals(1, alone.size(), "size alone");
            checkEquals(me, sum(alone, me), "sum alone");
        }
        checkEquals(3, sum(comm, me), "sum in the parent");
    }

    private static void shrinkLeavesRanksOut(Communicator comm) {
        int me = comm.rank();
        for (int out = 0; out < RANKS; out++) {
            if (me == out) {
                continue;
            }
            for (List<Integer> wrong : List.of(List.of(me), List.of(-1), List.of(RANKS))) {
                String message =
                        Messages.of(
                                IllegalArgumentException.class, () -> comm.shrink(wrong, false));
                check(message.contains("excluded names rank " + wrong.getFirst()), message);
            }
            // Twice with the same ranks: the second finds nothing of the first.
            for (int times = 0; times < 2; times++) {
                try (Communicator less = comm.shrink(List.of(out), false)) {
                    checkEquals(2, less.size(), "size without rank " + out);
                    checkEquals(me > out ? me - 1 : me, less.rank(), "rank without " + out);
                    checkEquals(3 - out, sum(less, me), "sum without " + out);
                }
            }
        }
        checkEquals(3, sum(comm, me), "sum of all");
        try (Communicator same = comm.shrink(List.of(), false)) {
            checkEquals(3, sum(same, me), "sum of all that remain");
        }
    }

    private static void shrinkGoesOnAfterAFailure(Communicator comm) {
        int me = comm.rank();
        if (me == 1) {
            comm.abort("rank 1 is ill");
            return;
        }
        try (Buffer kept = comm.device().allocate(DataType.INT64, 1)) {
            kept.setLong(0, me + 1);
            String message = Messages.of(RankFailedException.class, () -> sum(comm, me));
            check(message.contains("rank 1 is ill"), message);
            Messages.of(RankFailedException.class, () -> comm.shrink(List.of(1), false));
            try (Communicator two = comm.shrink(List.of(1), true)) {
                comm.close();
                two.allReduce(kept, ReduceOp.SUM, two.device().defaultStream());
                checkEquals(4, kept.getLong(0), "sum in memory of the first communicator");
                try (Communicator one = two.shrink(List.of(1 - two.rank()), true)) {
                    checkEquals(me, sum(one, me), "sum alone");
                }
                Messages.of(RankFailedException.class, () -> sum(two, me));
            }
        }
    }

    /** Rank 2 does not call it; rank 1 is interrupted, so that nobody waits for the timeout. */
    private static void shrinkGivesUp(Communicator comm) {
        try (Communicator other = part(comm, 0, comm.rank())) {
            if (comm.rank() < 2) {
                if (comm.rank() == 1) {
                    Thread.currentThread().interrupt();
                }
                String message =
                        Messages.of(JcclException.class, () -> comm.shrink(List.of(), true));
                boolean interrupted = Thread.interrupted();
                check(interrupted == (comm.rank() == 1), "interrupted: " + interrupted);
                check(
                        message.contains("rank 1")
                                && message.contains(interrupted ? "was interrupted" : "gave up"),
                        message);
                // What was left of that is in nobody's way.
                try (Communicator two = comm.shrink(List.of(2), true)) {
                    checkEquals(1, sum(two, two.rank()), "sum without rank 2");
                }
            }
            // Until then rank 2 is there, and does something else.
            other.barrier(other.device().defaultStream());
        }
    }

    /** Rank 2 is alive, but has closed the communicator. */
    private static void shrinkNoticesARankThatHasLeft(Communicator comm) {
        Communicator part = part(comm, 0, comm.rank());
        if (comm.rank() < 2) {
            String message =
                    Messages.of(RankFailedException.class, () -> part.shrink(List.of(), true));
            check(
                    message.contains("rank 2")
                            && message.contains("closed its communicator while ranks met"),
                    message);
            try (Communicator two = part.shrink(List.of(2), true)) {
                checkEquals(1, sum(two, two.rank()), "sum without rank 2");
            }
        }
        part.close();
        comm.barrier(comm.device().defaultStream());
    }

    private static void splitsMayBeSplit(Communicator comm) {
        try (Communicator reversed = part(comm, 0, -comm.rank());
                Communicator first = part(reversed, reversed.rank() == 0 ? 1 : 0, 0)) {
            checkEquals(2 - comm.rank(), reversed.rank(), "rank reversed");
            checkEquals(comm.rank() == 2 ? 1 : 2, first.size(), "size of the second split");
            long expected = comm.rank() == 2 ? 2 : 1;
            checkEquals(expected, sum(first, comm.rank()), "sum in the second split");
            checkEquals(3, sum(reversed, comm.rank()), "sum in the first split");
        }
    }

    private static void partsOutliveTheirParent(Communicator comm) {
        int me = comm.rank();
        try (Communicator part = part(comm, 0, 0)) {
            comm.barrier(comm.device().defaultStream());
            comm.close();
            for (int i = 0; i < 50; i++) {
                checkEquals(3, sum(part, me), "sum after the parent is closed");
            }
        }
    }

    private static void aBrokenPartLeavesItsParent(Communicator comm) {
        int me = comm.rank();
        try (Communicator part = part(comm, 0, 0)) {
            checkEquals(3, sum(part, me), "sum before");
            if (me == 0) {
                part.abort("no longer needed");
            } else {
                boolean thrown = false;
                try {
                    part.barrier(part.device().defaultStream());
                } catch (RankFailedException e) {
                    thrown = String.valueOf(e.getMessage()).contains("no longer needed");
                }
                check(thrown, "the aborted part says why");
            }
            checkEquals(3, sum(comm, me), "sum in the parent");
        }
        checkEquals(3, sum(comm, me), "sum in the parent after the part is closed");
    }

    private static void manySplits(Communicator comm, int times) {
        for (int i = 0; i < times; i++) {
            try (Communicator part = part(comm, (comm.rank() + i) % 2, 0)) {
                checkEquals(part.size(), sum(part, 1), "sum in split " + i);
            }
        }
    }

    /** Memory is zero when it is given out, aligned, and nobody else's. */
    private static void buffersDoNotOverlap(Communicator comm) {
        Device device = comm.device();
        SplittableRandom random = new SplittableRandom(42L + comm.rank());
        List<Buffer> open = new ArrayList<>();
        List<Byte> marks = new ArrayList<>();
        MemorySegment zeros = MemorySegment.ofArray(new byte[300_000]);
        MemorySegment marked = MemorySegment.ofArray(new byte[300_000]);
        for (int i = 0; i < 1500; i++) {
            if (open.size() > 40 || (!open.isEmpty() && random.nextInt(3) == 0)) {
                int which = random.nextInt(open.size());
                try (Buffer buffer = open.remove(which)) {
                    MemorySegment memory = buffer.asSegment();
                    long size = memory.byteSize();
                    marked.fill(marks.remove(which));
                    long at = MemorySegment.mismatch(memory, 0, size, marked, 0, size);
                    check(at < 0, "byte " + at + " of a buffer of " + size + " was overwritten");
                }
            } else {
                int large = random.nextInt(8) == 0 ? 300_000 : 3000;
                Buffer buffer = device.allocate(DataType.UINT8, random.nextInt(large));
                MemorySegment memory = buffer.asSegment();
                long size = memory.byteSize();
                check(
                        MemorySegment.mismatch(memory, 0, size, zeros, 0, size) < 0,
                        "new memory is not zero");
                check(size == 0 || buffer.address() % 64 == 0, "new memory is not aligned");
                byte mark = (byte) (i | 1);
                memory.fill(mark);
                open.add(buffer);
                marks.add(mark);
            }
        }
        open.forEach(Buffer::close);
        checkEquals(3, sum(comm, 1), "sum");
    }

    private static void buffersOutliveTheCommunicator(Communicator comm) {
        Buffer buffer = comm.device().allocate(DataType.FLOAT64, 5000);
        buffer.set(4999, comm.rank());
        comm.allReduce(buffer, ReduceOp.MAX, comm.device().defaultStream());
        comm.close();
        check(buffer.get(4999) == 2, "the result after the communicator is closed");
        buffer.set(0, 7);
        check(buffer.slice(0, 1).get(0) == 7, "an element set after the communicator is closed");
        buffer.close();
    }

    /** Three GiB in turn, where few machines lend that much shared memory at once. */
    private static void freedMemoryIsReused(Communicator comm) {
        for (int i = 0; i < 100; i++) {
            try (Buffer buffer = comm.device().allocate(DataType.INT64, 10L << 17)) {
                buffer.setLong((10L << 17) - 1, 1);
                if (i % 20 == 0) {
                    comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
                    checkEquals(3, buffer.getLong((10L << 17) - 1), "sum in round " + i);
                }
            }
        }
    }

    /** Small and large messages of a pair in turn: those sent at once must not pass others. */
    private static void messagesKeepTheirOrder(Communicator comm) {
        Device device = comm.device();
        Stream stream = device.defaultStream();
        int next = (comm.rank() + 1) % RANKS;
        int previous = (comm.rank() + RANKS - 1) % RANKS;
        int[] counts = {1, 100_000, 0, 3, 70_000, 16, 1, 1, 250_000, 2};
        try (Buffer out = device.allocate(DataType.INT32, 250_000);
                Buffer in = device.allocate(DataType.INT32, 250_000)) {
            for (int round = 0; round < 5; round++) {
                for (int i = 0; i < counts.length; i++) {
                    int count = counts[i];
                    long tag = 1000L * round + 10L * i;
                    for (int k = 0; k < Math.min(count, 10); k++) {
                        out.setLong(k, tag + k);
                    }
                    if (count > 0) {
                        out.setLong(count - 1, tag);
                    }
                    boolean first = comm.rank() == 0;
                    if (first) {
                        comm.send(out.slice(0, count), next, stream);
                    }
                    comm.recv(in.slice(0, count), previous, stream);
                    if (!first) {
                        comm.send(out.slice(0, count), next, stream);
                    }
                    if (count > 0) {
                        checkEquals(tag, in.getLong(count - 1), "last of message " + i);
                    }
                }
            }
        }
    }

    /** A message of memory that no other process can map is read after its sender has closed. */
    private static void messagesOutliveTheirSender(Communicator comm) throws InterruptedException {
        int count = 25_000;
        Stream stream = comm.device().defaultStream();
        Buffer buffer = Buffer.wrap(Arena.ofAuto().allocate(count * 4L, 64), DataType.INT32);
        comm.barrier(stream);
        if (comm.rank() == 0) {
            for (int i = 0; i < count; i++) {
                buffer.setLong(i, i * 7L);
            }
            comm.send(buffer, 1, stream);
            comm.close();
        } else if (comm.rank() == 1) {
            // Time for the sender to leave, which nothing shows as long as it may not.
            Thread.sleep(300);
            comm.recv(buffer, 0, stream);
            for (int i = 0; i < count; i++) {
                checkEquals(i * 7L, buffer.getLong(i), "element " + i);
            }
        }
    }

    private static void oneStreamIsDriven(Communicator comm, int times) {
        Device device = comm.device();
        List<Buffer> buffers = new ArrayList<>();
        try (Stream stream = device.newStream()) {
            for (int i = 0; i < times; i++) {
                Buffer buffer = device.allocate(DataType.INT32, 1 + i * 37L);
                buffer.setLong(i * 37L, comm.rank() + i);
                buffers.add(buffer);
                comm.allReduce(buffer, ReduceOp.SUM, stream);
                comm.broadcast(buffer, i % RANKS, stream);
            }
            stream.synchronize(Duration.ofSeconds(30));
        }
        for (int i = 0; i < buffers.size(); i++) {
            checkEquals(3 + 3L * i, buffers.get(i).getLong(i * 37L), "sum in buffer " + i);
            buffers.get(i).close();
        }
    }

    /**
     * One rank of every body.
     *
     * @param args {@code all} or {@code longer}, which takes these bodies
     */
    public static void main(String[] args) {
        Map<String, Communicator.RankBody> bodies = "all".equals(args[0]) ? all() : longer();
        for (String name : bodies.keySet()) {
            Map<String, String> own = new HashMap<>(System.getenv());
            own.merge("JCCL_JOB_ID", "-" + name, String::concat);
            try (Communicator comm = HostEngine.fromEnvironment(own, OPTIONS)) {
                Communicator.RankBody body = bodies.get(name);
                if (body == null) {
                    throw new IllegalArgumentException(name);
                }
                body.run(comm);
                System.out.println("BODY " + name + " ok");
            } catch (Exception | Error e) {
                System.out.println("BODY " + name + " failed");
                e.printStackTrace(System.out);
            }
        }
        System.out.println("DONE");
    }
}

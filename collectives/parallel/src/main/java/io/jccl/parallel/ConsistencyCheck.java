package io.jccl.parallel;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/** Checks that all ranks create the same object, by exchanging its description line by line. */
final class ConsistencyCheck {
    private ConsistencyCheck() {}

    /**
     * Throws the same error on every rank unless all ranks pass the same lines.
     *
     * @param what the object, for the message
     * @param lines its description
     */
    static void check(Communicator c, String what, List<String> lines) {
        byte[] mine = String.join("\n", lines).getBytes(StandardCharsets.UTF_8);
        long[] lengths = gather(c, mine.length);
        int longest = (int) Arrays.stream(lengths).max().orElse(0);
        byte[][] all = new byte[c.size()][];
        byte[] padded = Arrays.copyOf(mine, longest);
        byte[] texts = gather(c, MemorySegment.ofArray(padded), DataType.UINT8);
        for (int r = 0; r < all.length; r++) {
            all[r] = Arrays.copyOfRange(texts, r * longest, r * longest + (int) lengths[r]);
        }
        for (int r = 1; r < all.length; r++) {
            if (!Arrays.equals(all[0], all[r])) {
                throw differing(what, all[0], r, all[r]);
            }
        }
    }

    private static CollectiveMismatchException differing(
            String what, byte[] first, int rank, byte[] other) {
        String[] a = new String(first, StandardCharsets.UTF_8).split("\n", -1);
        String[] b = new String(other, StandardCharsets.UTF_8).split("\n", -1);
        int line = Arrays.mismatch(a, b);
        return new CollectiveMismatchException(
                ("the ranks disagree on %s: rank 0 has '%s', rank %s has '%s'; all ranks must pass"
                                + " the same")
                        .formatted(
                                what,
                                line < a.length ? a[line] : "nothing more",
                                rank,
                                line < b.length ? b[line] : "nothing more"));
    }

    /** Gathers one number from every rank, in rank order. */
    static long[] gather(Communicator c, long... mine) {
        byte[] all = gather(c, MemorySegment.ofArray(mine), DataType.INT64);
        return MemorySegment.ofArray(all).toArray(ValueLayout.JAVA_LONG_UNALIGNED);
    }

    private static byte[] gather(Communicator c, MemorySegment mine, DataType type) {
        long count = mine.byteSize() / type.size();
        byte[] all = new byte[Math.toIntExact(mine.byteSize() * c.size())];
        if (count == 0) {
            return all;
        }
        Stream stream = c.device().defaultStream();
        try (Buffer send = c.device().allocate(type, count);
                Buffer recv = c.device().allocate(type, count * c.size())) {
            send.copyFrom(mine);
            c.allGather(send, recv, stream);
            stream.synchronize();
            recv.copyTo(MemorySegment.ofArray(all));
        }
        return all;
    }
}

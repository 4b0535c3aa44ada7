package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;

/**
 * Synchronizes replicas at the start, and finds differences between them later.
 *
 * <p>Supports host memory and GPUs. All ranks call these methods with the same tensors in the same
 * order; the calling thread waits. The methods allocate memory and are meant for start-up and
 * occasional checks.
 *
 * {@snippet class="snippets.Parallel" region="sync"}
 *
 * <p><b>Threads:</b> the thread that uses the communicator.
 */
public final class ParameterSync {
    /** Bytes per chunk: fits into the L2 cache, since two checksums read it. */
    private static final int CHUNK = 1 << 18;

    /** Pieces into which a tensor is divided to locate a difference. */
    private static final int PIECES = 1024;

    private ParameterSync() {}

    /**
     * A named tensor.
     *
     * @param name name for messages
     * @param values its elements, on any device whose memory the communicator supports
     */
    public record Tensor(String name, Buffer values) {
        /** Rejects null. */
        public Tensor {
            Objects.requireNonNull(name, "name");
            Objects.requireNonNull(values, "values");
        }
    }

    /**
     * The first tensor in which ranks differ.
     *
     * @param tensor its name
     * @param index its index in the list
     * @param reference the rank to compare with: the lowest one of the largest group of equal ranks
     * @param ranks the ranks that differ from it, in order
     * @param element the first element in which the first of these differs; -1 if a checksum
     *     collision prevents locating it
     * @param expected value of the element on the reference rank
     * @param found value of the element on the other rank
     */
    public record Difference(
            String tensor,
            int index,
            int reference,
            List<Integer> ranks,
            long element,
            double expected,
            double found) {
        @Override
        public String toString() {
            return String.format(
                    "tensor %s ('%s') differs from rank %s's on rank%s%s",
                    index,
                    tensor,
                    reference,
                    ranks.size() == 1 ? " " + ranks.getFirst() : "s " + ranks,
                    element < 0
                            ? ""
                            : ": element %s is %s on rank %s, %s on rank %s"
                                    .formatted(
                                            element, found, ranks.getFirst(), expected, reference));
        }
    }

    /**
     * Broadcasts the root's values to all ranks.
     *
     * @param c the ranks
     * @param tensors of the same names, types and counts on all ranks
     * @param root the rank to send from
     * @throws io.jccl.CollectiveMismatchException if the ranks pass different tensors; the message
     *     names the first
     */
    public static void broadcast(Communicator c, List<Tensor> tensors, int root) {
        describe(c, tensors);
        Stream stream = c.device().defaultStream();
        for (Tensor t : tensors) {
            c.broadcast(t.values, root, stream);
        }
        stream.synchronize();
    }

    /**
     * Compares all tensors bit by bit across ranks, by two 32-bit checksums (CRC-32 and CRC-32C),
     * each of which is guaranteed to detect a change of a single element of up to 32 bits. Elements
     * are only searched if a checksum differs.
     *
     * @param c the ranks
     * @param tensors of the same names, types and counts on all ranks
     * @return the first difference, the same on all ranks; empty if there is none
     * @throws io.jccl.CollectiveMismatchException if the ranks pass different tensors; the message
     *     names the first
     */
    public static Optional<Difference> compare(Communicator c, List<Tensor> tensors) {
        describe(c, tensors);
        long[] mine = new long[tensors.size()];
        for (int t = 0; t < mine.length; t++) {
            Buffer values = tensors.get(t).values;
            mine[t] = checksum(values, 0, values.count());
        }
        long[] all = ConsistencyCheck.gather(c, mine);
        for (int t = 0; t < mine.length; t++) {
            long[] ofRanks = new long[c.size()];
            for (int r = 0; r < ofRanks.length; r++) {
                ofRanks[r] = all[r * mine.length + t];
            }
            int reference = mostCommon(ofRanks);
            List<Integer> odd = new ArrayList<>();
            for (int r = 0; r < ofRanks.length; r++) {
                if (ofRanks[r] != ofRanks[reference]) {
                    odd.add(r);
                }
            }
            if (!odd.isEmpty()) {
                return Optional.of(locate(c, tensors.get(t), t, reference, odd));
            }
        }
        return Optional.empty();
    }

    /**
     * Throws unless all tensors are equal bit by bit on all ranks.
     *
     * @param c the ranks; the communicator remains usable in either case
     * @param tensors of the same names, types and counts on all ranks
     * @throws IllegalStateException on all ranks, with the first difference
     * @see #compare
     */
    public static void requireEqual(Communicator c, List<Tensor> tensors) {
        compare(c, tensors)
                .ifPresent(d -> {
                    throw new IllegalStateException("replicas have diverged: " + d);
                });
    }

    private static void describe(Communicator c, List<Tensor> tensors) {
        ConsistencyCheck.check(
                c,
                "the tensors",
                tensors.stream()
                        .map(t ->
                                t.name
                                        + ", "
                                        + t.values.count()
                                        + " of "
                                        + t.values.dataType().label())
                        .toList());
    }

    /** The lowest rank among those with the most common value. */
    private static int mostCommon(long[] values) {
        int best = 0;
        int most = 0;
        for (int r = 0; r < values.length; r++) {
            int same = 0;
            for (long other : values) {
                same += other == values[r] ? 1 : 0;
            }
            if (same > most) {
                most = same;
                best = r;
            }
        }
        return best;
    }

    private static Difference locate(
            Communicator c, Tensor tensor, int index, int reference, List<Integer> odd) {
        Buffer values = tensor.values;
        int other = odd.getFirst();
        long from = 0;
        long to = values.count();
        while (to - from > 1) {
            long step = (to - from + PIECES - 1) / PIECES;
            int pieces = (int) ((to - from + step - 1) / step);
            long[] mine = new long[pieces];
            for (int i = 0; i < pieces; i++) {
                long at = from + i * step;
                mine[i] = checksum(values, at, Math.min(step, to - at));
            }
            long[] all = ConsistencyCheck.gather(c, mine);
            int i = 0;
            while (i < pieces && all[reference * pieces + i] == all[other * pieces + i]) {
                i++;
            }
            if (i == pieces) {
                return new Difference(
                        tensor.name, index, reference, odd, -1, Double.NaN, Double.NaN);
            }
            from += i * step;
            to = Math.min(to, from + step);
        }
        long[] bits = ConsistencyCheck.gather(c, bits(values, from));
        return new Difference(
                tensor.name,
                index,
                reference,
                odd,
                from,
                value(bits[reference], values.dataType()),
                value(bits[other], values.dataType()));
    }

    private static long checksum(Buffer values, long from, long count) {
        byte[] chunk = new byte[CHUNK];
        CRC32 one = new CRC32();
        CRC32C two = new CRC32C();
        int size = values.dataType().size();
        long step = CHUNK / size;
        for (long at = from; at < from + count; at += step) {
            long n = Math.min(step, from + count - at);
            int bytes = (int) n * size;
            values.slice(at, n).copyTo(MemorySegment.ofArray(chunk).asSlice(0, bytes));
            one.update(chunk, 0, bytes);
            two.update(chunk, 0, bytes);
        }
        return one.getValue() << 32 | two.getValue();
    }

    private static long bits(Buffer values, long at) {
        long[] bits = new long[1];
        values.slice(at, 1)
                .copyTo(MemorySegment.ofArray(bits).asSlice(0, values.dataType().size()));
        return bits[0];
    }

    private static double value(long bits, DataType type) {
        try (Buffer one = Device.host().allocate(type, 1)) {
            one.copyFrom(MemorySegment.ofArray(new long[] {bits}).asSlice(0, type.size()));
            return one.get(0);
        }
    }
}

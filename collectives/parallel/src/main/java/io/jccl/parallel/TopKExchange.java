package io.jccl.parallel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;

/**
 * Sends only the elements of largest magnitude; the rest is kept for the next step.
 *
 * <p>The magnitude threshold is exact: without its sign bit a float32 is ordered like an integer,
 * so three histograms over 11, 10 and 10 of its bits find the k-th largest. NaN is above
 * everything, so it is sent and not hidden.
 */
final class TopKExchange extends Exchange {
    private static final int MAGNITUDE = 0x7fffffff;
    private static final int[] SHIFTS = {20, 10, 0};

    private final Communicator c;
    private final Buffer bucket;
    private final int count;
    private final int k;

    /** Elements not sent so far, plus this step's gradient. */
    private final Buffer residual;

    /** Indices, then values as raw bits: one collective for both. */
    private final Buffer send;

    private final Buffer recv;
    private final int[] histogram = new int[1 << 11];
    private final Runnable select = this::select;
    private final Runnable add = this::add;

    TopKExchange(Communicator c, Buffer bucket, double density) {
        this.c = c;
        this.bucket = bucket;
        this.count = Math.toIntExact(bucket.count());
        this.k = (int) Math.clamp(Math.ceil(density * count), 1, count);
        this.residual = c.device().allocate(DataType.FLOAT32, count);
        try {
            this.send = c.device().allocate(DataType.INT32, 2L * k);
        } catch (RuntimeException e) {
            residual.close();
            throw e;
        }
        try {
            this.recv = c.device().allocate(DataType.INT32, 2L * k * c.size());
        } catch (RuntimeException e) {
            send.close();
            residual.close();
            throw e;
        }
    }

    @Override
    void enqueue(Stream stream) {
        stream.launchHostFunction(select);
        c.allGather(send, recv, stream);
        stream.launchHostFunction(add);
    }

    private void select() {
        MemorySegment gradient = bucket.asSegment();
        MemorySegment kept = residual.asSegment();
        MemorySegment out = send.asSegment();
        // Each digit of the threshold, from the highest; the first count adds the gradient as well.
        int prefix = 0;
        int above = Integer.SIZE - 1;
        int left = k;
        for (int shift : SHIFTS) {
            Arrays.fill(histogram, 0);
            int digits = above - shift;
            int mask = (1 << digits) - 1;
            if (shift == SHIFTS[0]) {
                for (int i = 0; i < count; i++) {
                    float sum = kept.getAtIndex(JAVA_FLOAT, i) + gradient.getAtIndex(JAVA_FLOAT, i);
                    kept.setAtIndex(JAVA_FLOAT, i, sum);
                    histogram[(Float.floatToRawIntBits(sum) & MAGNITUDE) >>> shift]++;
                }
            } else {
                for (int i = 0; i < count; i++) {
                    int m = kept.getAtIndex(JAVA_INT, i) & MAGNITUDE;
                    if (m >>> above == prefix) {
                        histogram[m >>> shift & mask]++;
                    }
                }
            }
            int digit = mask;
            while (histogram[digit] < left) {
                left -= histogram[digit--];
            }
            prefix = (prefix << digits) | digit;
            above = shift;
        }
        // All above the threshold, then the first ones equal to it.
        int threshold = prefix;
        int at = 0;
        for (int i = 0; i < count && at < k; i++) {
            int bits = kept.getAtIndex(JAVA_INT, i);
            int m = bits & MAGNITUDE;
            if (m > threshold || (m == threshold && left-- > 0)) {
                out.setAtIndex(JAVA_INT, at, i);
                out.setAtIndex(JAVA_INT, (long) k + at, bits);
                kept.setAtIndex(JAVA_INT, i, 0);
                at++;
            }
        }
    }

    /** Adds the elements of all ranks in rank order, so that all ranks get identical bits. */
    private void add() {
        MemorySegment gradient = bucket.asSegment();
        MemorySegment in = recv.asSegment();
        gradient.fill((byte) 0);
        int ranks = c.size();
        for (int r = 0; r < ranks; r++) {
            long from = 2L * k * r;
            for (int i = 0; i < k; i++) {
                int to = in.getAtIndex(JAVA_INT, from + i);
                float value = in.getAtIndex(JAVA_FLOAT, from + k + i);
                gradient.setAtIndex(JAVA_FLOAT, to, gradient.getAtIndex(JAVA_FLOAT, to) + value);
            }
        }
        if (ranks > 1) {
            for (int i = 0; i < count; i++) {
                gradient.setAtIndex(JAVA_FLOAT, i, gradient.getAtIndex(JAVA_FLOAT, i) / ranks);
            }
        }
    }

    @Override
    long bytes() {
        return send.byteSize();
    }

    @Override
    List<Buffer> carried() {
        return List.of(residual);
    }

    @Override
    public void close() {
        recv.close();
        send.close();
        residual.close();
    }
}

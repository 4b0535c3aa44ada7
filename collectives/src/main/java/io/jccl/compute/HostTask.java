package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * An operation on a stream of the host: what it does to a range of units, and its arguments by the
 * order in which they were put. Used again once it has run, so that an operation allocates nothing.
 *
 * <p><b>Threads:</b> the caller's until it is enqueued, then those that run it.
 */
final class HostTask extends Chunks.Work implements Runnable {
    /** What is done to units from begin to before end. A static method, as it captures nothing. */
    interface Body {
        void run(HostTask task, int thread, long begin, long end);
    }

    private static final int BUFFERS = 7;
    private static final int NUMBERS = 9;

    private final HostCompute compute;
    private final @Nullable MemorySegment[] memory = new MemorySegment[BUFFERS];
    private final DataType[] types = new DataType[BUFFERS];
    private final long[] numbers = new long[NUMBERS];
    private final double[] reals = new double[NUMBERS];
    private @Nullable Object shape;
    private int buffers;
    private int integers;
    private int doubles;
    private @Nullable Body body;
    private long units;

    /** Units that a thread takes at a time; 0 if the operation is not shared. */
    private long chunk;

    HostTask(HostCompute compute) {
        this.compute = compute;
    }

    HostTask begin(Body what) {
        body = what;
        return this;
    }

    HostTask put(@Nullable Buffer b) {
        if (b != null) {
            memory[buffers] = b.asSegment();
            types[buffers] = b.dataType();
        }
        buffers++;
        return this;
    }

    HostTask put(long number) {
        numbers[integers++] = number;
        return this;
    }

    HostTask put(double number) {
        reals[doubles++] = number;
        return this;
    }

    /** Sets a description of the operation, which is immutable. */
    HostTask of(Object description) {
        shape = description;
        return this;
    }

    /** Enqueues an operation over elements. */
    void each(Stream stream, long count) {
        rows(stream, count, 1);
    }

    /**
     * Enqueues an operation over units of some work each, such as rows of a width; a thread takes
     * several at a time if they are small.
     */
    void rows(Stream stream, long count, long work) {
        chunks(stream, count, Math.max(1, HostCompute.GRAIN / Math.max(1, work)));
    }

    /** Enqueues an operation of which threads take a number of units at a time. */
    void chunks(Stream stream, long count, long most) {
        units = count;
        chunk = most;
        enqueue(stream);
    }

    /** Enqueues an operation that runs on the stream's thread alone, without scratch memory. */
    void alone(Stream stream) {
        chunk = 0;
        enqueue(stream);
    }

    private void enqueue(Stream stream) {
        enqueue(stream, this);
    }

    static void enqueue(Stream stream, Runnable work) {
        Arguments.on(Device.host(), stream);
        stream.launchHostFunction(work);
    }

    @Override
    public void run() {
        try {
            if (chunk == 0) {
                run(0, 0, 1);
            } else {
                compute.share(this, units, chunk);
            }
        } finally {
            for (int i = 0; i < buffers; i++) {
                memory[i] = null;
            }
            shape = null;
            buffers = 0;
            integers = 0;
            doubles = 0;
            compute.done(this);
        }
    }

    @Override
    public void run(int thread, long begin, long end) {
        Objects.requireNonNull(body).run(this, thread, begin, end);
    }

    HostCompute compute() {
        return compute;
    }

    HostScratch scratch(int thread) {
        return compute.scratch(thread);
    }

    boolean has(int buffer) {
        return memory[buffer] != null;
    }

    MemorySegment memory(int buffer) {
        return Objects.requireNonNull(memory[buffer]);
    }

    @Nullable MemorySegment memoryOrNull(int buffer) {
        return memory[buffer];
    }

    DataType type(int buffer) {
        return types[buffer];
    }

    long number(int index) {
        return numbers[index];
    }

    int integer(int index) {
        return (int) numbers[index];
    }

    double real(int index) {
        return reals[index];
    }

    float single(int index) {
        return (float) reals[index];
    }

    Object description() {
        return Objects.requireNonNull(shape);
    }

    @Nullable Object descriptionOrNull() {
        return shape;
    }

    /** Widens elements of a buffer of float32, bfloat16 or float16. */
    void load(int buffer, long index, float[] to, int count) {
        RowKernel.BEST.load(memory(buffer), types[buffer], index, to, 0, count);
    }

    /** Rounds to elements of such a buffer. */
    void store(float[] from, int buffer, long index, int count) {
        RowKernel.BEST.store(from, 0, memory(buffer), types[buffer], index, count);
    }
}

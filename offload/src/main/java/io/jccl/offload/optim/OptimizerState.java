package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.zip.CRC32C;

/**
 * Float32 parameters and the state tensors of an optimizer in host memory, and their file.
 *
 * <p>The file has a header of 64 bytes (in little-endian order the magic number, the number of
 * moments, the count of parameters and the step; the rest 0), then parameters and moments one after
 * the other, float32 in little-endian order, then the CRC-32C of all that.
 *
 * <p><b>Threads:</b> see {@link Optimizer}; save and restore while no step runs.
 */
public final class OptimizerState implements AutoCloseable {
    private static final long MAGIC =
            ByteBuffer.wrap("JCCLOPT1".getBytes(StandardCharsets.US_ASCII))
                    .order(ByteOrder.LITTLE_ENDIAN)
                    .getLong();
    private static final int HEADER = 64;
    private static final int BLOCK = 1 << 20;
    private static final StateTensor MOMENT = StateTensor.float32("moment");

    private final List<Buffer> buffers;
    private final List<StateTensor> tensors;
    private final boolean owned;

    private OptimizerState(List<Buffer> buffers, List<StateTensor> tensors, boolean owned) {
        this.buffers = buffers;
        this.tensors = tensors;
        this.owned = owned;
    }

    /**
     * Wraps memory that the caller allocated, for example from a pool of pinned memory. Moments
     * must be zero before the first step.
     *
     * @param parameters float32 in host memory
     * @param moments one buffer for each moment of the optimizer, with the type and count of the
     *     parameters; buffers must not share memory
     * @return the state; closing it does not close the buffers
     * @throws IllegalArgumentException if type, count or number are wrong, or memory is shared
     * @throws UnsupportedOperationException if the memory is not host memory
     */
    public static OptimizerState of(Buffer parameters, Buffer... moments) {
        if (moments.length > 2) {
            throw new IllegalArgumentException(
                    "there are " + moments.length + " moments, expected 0 to 2");
        }
        return of(Collections.nCopies(moments.length, MOMENT), parameters, moments);
    }

    /**
     * As {@link #of(Buffer, Buffer...)}, for the state tensors of an optimizer.
     *
     * @param optimizer determines number, types and counts
     * @param parameters float32 in host memory
     * @param state one buffer for each state tensor
     * @return the state; closing it does not close the buffers
     * @throws IllegalArgumentException if type, count or number are wrong, or memory is shared
     * @throws UnsupportedOperationException if the memory is not host memory
     */
    public static OptimizerState of(Optimizer optimizer, Buffer parameters, Buffer... state) {
        if (state.length != optimizer.moments()) {
            throw new IllegalArgumentException(
                    "there are "
                            + state.length
                            + " state tensors, but "
                            + optimizer.label()
                            + " has "
                            + optimizer.moments());
        }
        return of(optimizer.state(), parameters, state);
    }

    private static OptimizerState of(
            List<StateTensor> tensors, Buffer parameters, Buffer... moments) {
        Buffer[] all = new Buffer[1 + moments.length];
        all[0] = parameters;
        System.arraycopy(moments, 0, all, 1, moments.length);
        for (int i = 0; i < all.length; i++) {
            String name = i == 0 ? "parameters" : "moment " + (i - 1);
            StateTensor tensor = i == 0 ? MOMENT : tensors.get(i - 1);
            if (all[i].dataType() != tensor.type()) {
                throw new IllegalArgumentException(
                        name
                                + " are of "
                                + all[i].dataType().label()
                                + ", expected "
                                + tensor.type().label()
                                + (i == 0 ? ": the CPU's optimizers keep float32 parameters" : ""));
            }
            long expected = tensor.count(parameters.count());
            if (all[i].count() != expected) {
                throw new IllegalArgumentException(
                        name
                                + " has "
                                + all[i].count()
                                + " elements, expected "
                                + expected
                                + " for "
                                + parameters.count()
                                + " parameters");
            }
            MemorySegment s = all[i].asSegment();
            for (int j = 0; j < i; j++) {
                if (s.asOverlappingSlice(all[j].asSegment()).isPresent()) {
                    throw new IllegalArgumentException(
                            name
                                    + " shares memory with "
                                    + (j == 0 ? "the parameters" : "moment " + (j - 1))
                                    + "; each needs its own");
                }
            }
        }
        return new OptimizerState(List.of(all), tensors, false);
    }

    /**
     * Allocates parameters and moments, all zero.
     *
     * @param optimizer determines the number of moments
     * @param device the host
     * @param count number of parameters
     * @return the state; closing it frees the memory
     * @throws UnsupportedOperationException if the device's memory is not host memory
     */
    public static OptimizerState allocate(Optimizer optimizer, Device device, long count) {
        Buffer[] moments = new Buffer[optimizer.moments()];
        Buffer[] all = new Buffer[1 + moments.length];
        try {
            all[0] = device.allocate(DataType.FLOAT32, count).zero();
            for (int i = 1; i < all.length; i++) {
                StateTensor t = optimizer.state().get(i - 1);
                all[i] = device.allocate(t.type(), t.count(count)).zero();
            }
            System.arraycopy(all, 1, moments, 0, moments.length);
            return new OptimizerState(
                    of(optimizer, all[0], moments).buffers, optimizer.state(), true);
        } catch (RuntimeException | Error e) {
            close(all);
            throw e;
        }
    }

    @SuppressWarnings("NullAway") // an array that allocate has filled in part
    private static void close(Buffer[] some) {
        for (Buffer b : some) {
            if (b != null) {
                b.close();
            }
        }
    }

    /**
     * Number of parameters.
     *
     * @return 0 or more
     */
    public long count() {
        return buffers.getFirst().count();
    }

    /**
     * Number of moments.
     *
     * @return 0 or more
     */
    public int moments() {
        return buffers.size() - 1;
    }

    /**
     * The parameters.
     *
     * @return float32 in host memory
     */
    public Buffer parameters() {
        return buffers.getFirst();
    }

    /**
     * A state tensor: of Adam 0 is the mean of gradients, 1 the mean of their squares.
     *
     * @param index its index
     * @return host memory of its {@link #tensor type}
     * @throws IndexOutOfBoundsException if there is none
     */
    public Buffer moment(int index) {
        return buffers.get(1 + Objects.checkIndex(index, moments()));
    }

    /**
     * What a moment is.
     *
     * @param index its index
     * @return name and layout; without a name if the state was made without an optimizer
     * @throws IndexOutOfBoundsException if there is none
     */
    public StateTensor tensor(int index) {
        return tensors.get(index);
    }

    /** Whether an optimizer keeps such state. */
    boolean fits(Optimizer optimizer) {
        List<StateTensor> wanted = optimizer.state();
        if (wanted == tensors) {
            return true;
        }
        boolean fits = wanted.size() == tensors.size();
        for (int k = 0; fits && k < tensors.size(); k++) {
            fits = wanted.get(k).layout() == tensors.get(k).layout();
        }
        return fits;
    }

    /**
     * Saves everything to a file: first to a temporary file with {@code .part} added to its name,
     * which replaces the file once it is on the disk. A process that ends before leaves the old
     * file.
     *
     * @param file the target
     * @param step the last step that was taken, 0 for none
     * @throws IOException if writing fails, such as on a full disk
     * @throws IllegalArgumentException if step is negative
     */
    public void save(Path file, long step) throws IOException {
        if (step < 0) {
            throw new IllegalArgumentException("step is " + step + ", expected 0 or more");
        }
        try {
            AtomicFile.write(
                    file,
                    c -> {
                        CRC32C crc = new CRC32C();
                        ByteBuffer block =
                                ByteBuffer.allocateDirect(BLOCK).order(ByteOrder.LITTLE_ENDIAN);
                        block.putLong(MAGIC).putLong(moments()).putLong(count()).putLong(step);
                        write(c, crc, block.position(HEADER));
                        for (Buffer b : buffers) {
                            MemorySegment s = b.asSegment();
                            for (long at = 0; at < s.byteSize(); at += BLOCK) {
                                int n = (int) Math.min(BLOCK, s.byteSize() - at);
                                block.clear();
                                copy(b, s, at, MemorySegment.ofBuffer(block), 0, n, true);
                                write(c, crc, block.position(n));
                            }
                        }
                        block.clear();
                        write(c, new CRC32C(), block.putInt((int) crc.getValue()));
                    });
        } catch (IOException e) {
            throw new IOException(
                    "cannot save "
                            + fileSize()
                            + " bytes of optimizer state to "
                            + file
                            + ", which is as it was: "
                            + e,
                    e);
        }
        Path folder = file.toAbsolutePath().getParent();
        if (folder != null) {
            AtomicFile.force(folder);
        }
    }

    private long fileSize() {
        long sum = HEADER + Integer.BYTES;
        for (Buffer b : buffers) {
            sum += b.byteSize();
        }
        return sum;
    }

    private static void write(FileChannel c, CRC32C crc, ByteBuffer block) throws IOException {
        block.flip();
        crc.update(block);
        block.rewind();
        while (block.hasRemaining()) {
            c.write(block);
        }
    }

    /** Copies, float32 in little-endian order on the side of the file. */
    private static void copy(
            Buffer of,
            MemorySegment from,
            long fromAt,
            MemorySegment to,
            long toAt,
            int n,
            boolean out) {
        if (of.dataType() != DataType.FLOAT32) {
            MemorySegment.copy(from, fromAt, to, toAt, n);
            return;
        }
        var little = ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
        var here = ValueLayout.JAVA_INT_UNALIGNED;
        MemorySegment.copy(
                from,
                out ? here : little,
                fromAt,
                to,
                out ? little : here,
                toAt,
                n / Integer.BYTES);
    }

    /**
     * Restores everything. The whole file is checked before anything is changed.
     *
     * @param file written by {@link #save} for a state with the same count and moments
     * @return the last step that was taken
     * @throws IOException if the file cannot be read, is torn, is not a state, or is of another
     *     state
     */
    public long restore(Path file) throws IOException {
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
            ByteBuffer block = ByteBuffer.allocateDirect(BLOCK).order(ByteOrder.LITTLE_ENDIAN);
            if (c.size() < HEADER) {
                throw new IOException(
                        file + " is not an optimizer state: it has " + c.size() + " bytes");
            }
            read(c, block, 0, HEADER, file);
            if (block.getLong(0) != MAGIC) {
                throw new IOException(file + " is not an optimizer state: it has another header");
            }
            long step = block.getLong(24);
            if (block.getLong(8) != moments() || block.getLong(16) != count()) {
                throw new IOException(
                        file
                                + " holds "
                                + block.getLong(16)
                                + " parameters with "
                                + block.getLong(8)
                                + " moments, expected "
                                + count()
                                + " with "
                                + moments());
            }
            long size = fileSize();
            if (c.size() != size) {
                throw new IOException(
                        file
                                + " is torn: it has "
                                + c.size()
                                + " bytes, expected "
                                + size
                                + "; take an older one");
            }
            CRC32C crc = new CRC32C();
            long end = size - Integer.BYTES;
            for (long at = 0; at < end; at += BLOCK) {
                read(c, block, at, (int) Math.min(BLOCK, end - at), file);
                crc.update(block);
            }
            read(c, block, end, Integer.BYTES, file);
            if (block.getInt(0) != (int) crc.getValue()) {
                throw new IOException(
                        file
                                + " is damaged: its checksum is "
                                + Integer.toHexString(block.getInt(0))
                                + ", its content gives "
                                + Integer.toHexString((int) crc.getValue())
                                + "; take an older one");
            }
            long base = HEADER;
            for (Buffer b : buffers) {
                MemorySegment s = b.asSegment();
                for (long at = 0; at < s.byteSize(); at += BLOCK) {
                    int n = (int) Math.min(BLOCK, s.byteSize() - at);
                    read(c, block, base + at, n, file);
                    copy(b, MemorySegment.ofBuffer(block), 0, s, at, n, false);
                }
                base += s.byteSize();
            }
            return step;
        }
    }

    private static void read(FileChannel c, ByteBuffer block, long at, int n, Path file)
            throws IOException {
        block.clear().limit(n);
        while (block.hasRemaining()) {
            if (c.read(block, at + block.position()) < 0) {
                throw new IOException(
                        file + " ends at byte " + (at + block.position()) + " while it is read");
            }
        }
        block.flip();
    }

    /** Frees the memory, if it was allocated with the state. Closing twice does nothing. */
    @Override
    public void close() {
        if (owned) {
            for (Buffer b : buffers) {
                b.close();
            }
        }
    }
}

package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;

/**
 * Float32 parameters and the state tensors of an optimizer in host memory, and their file.
 *
 * <p>The file has a header of 64 bytes (the magic number, the number of state tensors, the count of
 * parameters and the step; the rest 0), then parameters and state tensors one after the other, each
 * in {@linkplain StateTensor#type its type}, then the CRC-32C of all that. Numbers are
 * little-endian, like the machines that run this library: files have what memory has.
 *
 * {@snippet class="snippets.Offload" region="optimizer"}
 *
 * <p><b>Threads:</b> see {@link Optimizer}; save and restore while no step runs.
 */
public final class OptimizerState implements AutoCloseable {
    private static final StateTensor MOMENT = StateTensor.float32("moment");

    private final List<Buffer> buffers;
    private final List<StateTensor> tensors;
    private final boolean owned;
    private final List<TensorShape> shapes;

    /** Where each tensor begins, and the end, in the first one's elements and in factors. */
    private final long[] begins;

    private final long[] factors;

    /** What the parameters begin with, counted from the first tensor's first element. */
    private final long first;

    private OptimizerState(
            List<Buffer> buffers,
            List<StateTensor> tensors,
            List<TensorShape> shapes,
            long first,
            boolean owned) {
        this.buffers = buffers;
        this.tensors = tensors;
        this.shapes = shapes;
        this.first = first;
        this.owned = owned;
        this.begins = new long[shapes.size() + 1];
        this.factors = new long[shapes.size() + 1];
        for (int i = 0; i < shapes.size(); i++) {
            begins[i + 1] = begins[i] + shapes.get(i).count();
            factors[i + 1] = factors[i] + shapes.get(i).factors();
        }
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
        return of(
                Collections.nCopies(moments.length, MOMENT),
                List.of(),
                0,
                false,
                parameters,
                List.of(moments));
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
        return of(optimizer, List.of(), 0, parameters, state);
    }

    /**
     * As {@link #of(Optimizer, Buffer, Buffer...)}, for a rule that needs the shapes of tensors.
     *
     * @param optimizer determines number, types and counts
     * @param shapes tensors that follow each other
     * @param first which of their elements, counted from the first tensor's first, the parameters
     *     begin with
     * @param parameters float32 in host memory: some of these tensors' elements, and padding after
     *     the last
     * @param state one buffer for each state tensor
     * @return the state; closing it does not close the buffers
     * @throws IllegalArgumentException if type, count or number are wrong, or memory is shared
     * @throws UnsupportedOperationException if the memory is not host memory
     */
    public static OptimizerState of(
            Optimizer optimizer,
            List<TensorShape> shapes,
            long first,
            Buffer parameters,
            Buffer... state) {
        if (state.length != optimizer.moments()) {
            throw new IllegalArgumentException(
                    "there are %s state tensors, but %s has %s"
                            .formatted(state.length, optimizer.label(), optimizer.moments()));
        }
        return of(optimizer.state(), List.copyOf(shapes), first, false, parameters, List.of(state));
    }

    private static OptimizerState of(
            List<StateTensor> tensors,
            List<TensorShape> shapes,
            long first,
            boolean owned,
            Buffer parameters,
            List<Buffer> moments) {
        List<Buffer> all = new ArrayList<>(List.of(parameters));
        all.addAll(moments);
        for (int i = 0; i < all.size(); i++) {
            Buffer one = all.get(i);
            String name = i == 0 ? "parameters" : "moment " + (i - 1);
            StateTensor tensor = i == 0 ? MOMENT : tensors.get(i - 1);
            if (one.dataType() != tensor.type()) {
                throw new IllegalArgumentException(
                        name
                                + " are of "
                                + one.dataType().label()
                                + ", expected "
                                + tensor.type().label()
                                + (i == 0 ? ": the CPU's optimizers keep float32 parameters" : ""));
            }
            long expected = tensor.count(parameters.count(), shapes);
            if (one.count() != expected) {
                throw new IllegalArgumentException(
                        "%s has %s elements, expected %s for %s parameters"
                                .formatted(name, one.count(), expected, parameters.count()));
            }
            MemorySegment s = one.asSegment();
            for (int j = 0; j < i; j++) {
                if (s.asOverlappingSlice(all.get(j).asSegment()).isPresent()) {
                    throw new IllegalArgumentException(
                            name
                                    + " shares memory with "
                                    + (j == 0 ? "the parameters" : "moment " + (j - 1))
                                    + "; each needs its own");
                }
            }
        }
        return new OptimizerState(List.copyOf(all), tensors, shapes, first, owned);
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
        return allocate(optimizer, device, List.of(), count);
    }

    /**
     * As {@link #allocate(Optimizer, Device, long)}, for a rule that needs the shapes of tensors.
     *
     * @param optimizer determines number, types and counts
     * @param device the host
     * @param shapes tensors that follow each other: their elements are the parameters
     * @return the state; closing it frees the memory
     * @throws UnsupportedOperationException if the device's memory is not host memory
     */
    public static OptimizerState allocate(
            Optimizer optimizer, Device device, List<TensorShape> shapes) {
        long count = 0;
        for (TensorShape s : shapes) {
            count = Math.addExact(count, s.count());
        }
        return allocate(optimizer, device, List.copyOf(shapes), count);
    }

    private static OptimizerState allocate(
            Optimizer optimizer, Device device, List<TensorShape> shapes, long count) {
        List<Buffer> moments = new ArrayList<>();
        Buffer parameters = device.allocate(DataType.FLOAT32, count);
        try {
            parameters.zero();
            for (StateTensor t : optimizer.state()) {
                moments.add(device.allocate(t.type(), t.count(count, shapes)).zero());
            }
            return of(optimizer.state(), shapes, 0, true, parameters, moments);
        } catch (RuntimeException | Error e) {
            parameters.close();
            moments.forEach(Buffer::close);
            throw e;
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

    /**
     * The tensors that the parameters belong to.
     *
     * @return their shapes; empty if the state was made without
     */
    public List<TensorShape> shapes() {
        return shapes;
    }

    /**
     * Reads a moment of a tensor.
     *
     * @param index index of the moment
     * @param from index in the state of the first element: a multiple of the layout's {@linkplain
     *     StateTensor#unit unit}; of a whole tensor if the layout has means of rows and columns
     * @param to float32 in host memory, one for each element to read
     * @throws IllegalArgumentException if it begins within a block
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     */
    public void decode(int index, long from, Buffer to) {
        StateTensor t = tensor(index);
        t.decode(shapes(t, from), memory(t, index, from, to.count()), to);
    }

    /**
     * Writes a moment of a tensor; see {@link #decode}.
     *
     * @param index index of the moment
     * @param from index in the state of the first element
     * @param values float32 in host memory, one for each element to write: whole blocks, or up to
     *     the end of the state
     * @throws IllegalArgumentException if it begins or ends within a block
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     */
    public void encode(int index, long from, Buffer values) {
        StateTensor t = tensor(index);
        checkBlocks(t.name(), index, from, from + values.count());
        t.encode(shapes(t, from), values, memory(t, index, from, values.count()));
    }

    private List<TensorShape> shapes(StateTensor t, long from) {
        return t.layout() == StateTensor.Layout.FACTORED
                ? List.of(shapes.get(tensorAt(from)))
                : List.of();
    }

    private Buffer memory(StateTensor t, int index, long from, long count) {
        if (t.layout() != StateTensor.Layout.FACTORED) {
            Objects.checkFromIndexSize(from, count, count());
            checkBlocks(t.name(), index, from, count());
            return moment(index).slice(t.count(from), t.count(count));
        }
        int tensor = tensorAt(from);
        return moment(index).slice(factors[tensor], factors[tensor + 1] - factors[tensor]);
    }

    /** Refuses elements that begin or end within a block of a moment. */
    void checkBlocks(String of, int index, long from, long end) {
        int unit = tensor(index).unit();
        boolean within = from % unit != 0;
        if (within || (end % unit != 0 && end != count())) {
            throw new IllegalArgumentException(
                    ("a piece of %s %s element %s, expected a multiple of %s%s: its state is in"
                                    + " blocks")
                            .formatted(
                                    of,
                                    within ? "begins at" : "ends before",
                                    within ? from : end,
                                    unit,
                                    within ? "" : ", or the end of the state, " + count()));
        }
    }

    /** Whether the parameters are those of tensors with shapes, all of them and no padding. */
    boolean hasWholeTensors() {
        return !shapes.isEmpty() && first == 0 && begins[shapes.size()] == count();
    }

    /** Index of the tensor that an element of the parameters belongs to. */
    int tensorAt(long from) {
        int found = Arrays.binarySearch(begins, first + from);
        // What comes after the last tensor is its padding.
        return Math.min(found >= 0 ? found : -found - 2, shapes.size() - 1);
    }

    /** Index in a tensor of an element of the parameters. */
    long indexIn(int tensor, long from) {
        return first + from - begins[tensor];
    }

    /** Index of a tensor's first factor. */
    long factorsAt(int tensor) {
        return factors[tensor];
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
        StateFile.save(buffers, file, step);
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
        return StateFile.restore(buffers, file);
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

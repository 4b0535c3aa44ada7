package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.TierMemory;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Trains with optimizer state, gradients and parameters that are sharded over the ranks of a
 * communicator and stored on any tier; one object per rank. With <i>n</i> ranks each layer is
 * divided into n blocks of the same count, and rank i owns block i.
 *
 * {@snippet class="snippets.Offload" region="zero"}
 *
 * <p>A step proceeds as follows, on every rank in the same order: {@link #gather} a layer before
 * its forward or backward computation and {@link #release} it afterwards; {@link #gradients}
 * returns the buffer to which gradients are added, and {@link #reduce} marks them as complete;
 * after all micro-steps {@link #step} updates the parameters. The stages are:
 *
 * <ul>
 *   <li>0: gradients are summed locally, and by allReduce after the last micro-step; every rank
 *       updates all parameters.
 *   <li>1: the same with reduceScatter; each rank updates its block, and allGather distributes it.
 *   <li>2: reduceScatter after every micro-step, into an accumulator of this rank's block.
 *   <li>3: parameters are also kept only as this rank's block, and are gathered layer by layer.
 * </ul>
 *
 * <p><b>Mean or sum:</b> the update uses the mean of the gradients over ranks and micro-steps, so
 * let the loss be the mean over the samples of one micro-step of one rank. They are summed as they
 * are and divided in the update, in the same multiplication as loss scale and clipping. State on
 * tier {@link Tier#DEVICE} of a GPU is updated by kernels, which also decide whether the step is
 * taken; gradients and parameters must be there too. All other state is updated on the CPU.
 * Gradients are added up where they live.
 *
 * <p><b>Memory:</b> a step creates no Java objects. All memory is allocated when the optimizer is
 * created, see {@link #usage}, except for one layer in float32 during {@link #initialize} and
 * {@link #forEachParameter}.
 *
 * <p><b>Errors:</b> if a step fails, {@link #steps} shows whether the state is that before or that
 * after it. If the communicator still works (for example if a store fails on any rank), all ranks
 * get an error and are back before the step, and {@link #step} may be called again. If the
 * communicator is broken, only {@link #saveAlone}, {@link #undoStep} and {@link #close} can be
 * used; the state is that before the step if the failure came before the update, or if the previous
 * state is kept. If a rank may have updated some layers and not all, and has no previous state, it
 * refuses the mixture until {@link #load} or {@link #initialize}.
 *
 * <p><b>Threads:</b> one at a time: the one that uses the communicator.
 */
public final class ZeroOptimizer implements AutoCloseable {
    private final ZeroConfig config;
    private final Progress progress;
    private final Memory memory;
    private final Ranks ranks;
    private final List<Part> parts = new ArrayList<>();
    private final GatherWindows windows;
    private final Gradients gradients;
    private final OptimizerStates states;
    private final Update update;
    private final StateIo values;

    /**
     * Allocates memory.
     *
     * @param last closed after all else; null for nothing
     */
    private ZeroOptimizer(ZeroConfig config, @Nullable TierMemory last) {
        this.config = config;
        this.progress = new Progress(config.rank());
        this.memory = new Memory(config);
        try {
            if (last != null) {
                memory.own(last);
            }
            this.ranks = new Ranks(config, memory);
            for (int i = 0; i < config.layers().size(); i++) {
                parts.add(new Part(config, memory, i));
            }
            this.windows = new GatherWindows(config, ranks, parts, memory);
            Compute compute =
                    config.sumsOnDevice() ? memory.own(Compute.of(config.device())) : null;
            DeviceSums sums =
                    compute == null ? null : new DeviceSums(config, compute, ranks, parts, memory);
            this.gradients = new Gradients(config, ranks, parts, memory, sums);
            ParameterPublisher publisher =
                    new ParameterPublisher(config, ranks, parts, windows, memory);
            this.states = new OptimizerStates(config, ranks, parts, memory);
            DeviceUpdate device =
                    compute == null || sums == null || !config.updatesOnDevice()
                            ? null
                            : new DeviceUpdate(config, compute, ranks, sums, memory);
            this.update =
                    new Update(
                            config, ranks, progress, parts, states, gradients, publisher, device);
            this.values = new StateIo(config, ranks, progress, parts, states);
        } catch (RuntimeException | Error e) {
            try {
                memory.close();
            } catch (RuntimeException second) {
                e.addSuppressed(second);
            }
            throw e;
        }
    }

    /**
     * Creates the optimizer of one rank in its own memory, without limits: on the communicator's
     * device and pinned. The loss scale is 1. All ranks pass the same arguments except for the
     * communicator. Afterwards {@link #initialize} or {@link #load} sets the parameters.
     *
     * @param comm this rank's communicator
     * @param layers the model's parameters, in the order of the forward computation
     * @param optimizer the update rule
     * @param options what is sharded, and on which tiers it is stored: not NVME, whose files are
     *     the caller's
     * @return this rank's optimizer; {@link #close} frees its memory
     * @throws IllegalArgumentException if layers, options and device do not match
     */
    public static ZeroOptimizer create(
            Communicator comm,
            List<ShardedLayer> layers,
            Optimizer optimizer,
            ZeroOptions options) {
        TierMemory own = TierMemory.of(comm.device());
        ParameterGroup all = ParameterGroup.of(optimizer);
        try {
            ZeroConfig config =
                    new ZeroConfig(
                            comm,
                            layers,
                            optimizer,
                            (l, t) -> all,
                            options,
                            LossScale.fixed(1),
                            own.tiers());
            return new ZeroOptimizer(config, own);
        } catch (RuntimeException | Error e) {
            own.close();
            throw e;
        }
    }

    /**
     * Creates the optimizer of one rank. All ranks pass the same arguments except for communicator,
     * loss scale and tiers. Afterwards {@link #initialize} or {@link #load} sets the parameters.
     *
     * @param comm this rank's communicator
     * @param layers the model's parameters, in the order of the forward computation
     * @param optimizer the update rule
     * @param options what is sharded, and on which tiers it is stored
     * @param scale the loss scale; one object per rank, which {@link #step} adapts
     * @param tiers memory of this rank; the caller closes it afterwards
     * @return this rank's optimizer
     * @throws io.jccl.offload.OffloadMemoryException if a tier has no room; everything is freed
     *     then
     * @throws IllegalArgumentException if layers, options and device do not match
     */
    public static ZeroOptimizer create(
            Communicator comm,
            List<ShardedLayer> layers,
            Optimizer optimizer,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers) {
        ParameterGroup all = ParameterGroup.of(optimizer);
        return create(comm, layers, optimizer, (l, t) -> all, options, scale, tiers);
    }

    /**
     * As {@link #create(Communicator, List, Optimizer, ZeroOptions, LossScale, Tiers)}, with groups
     * of parameters.
     *
     * @param comm this rank's communicator
     * @param layers the model's parameters, in the order of the forward computation
     * @param optimizer the update rule; its groups have others with the same label and state
     * @param groups the group of each tensor, always the same
     * @param options what is sharded, and on which tiers it is stored
     * @param scale the loss scale
     * @param tiers memory of this rank; the caller closes it afterwards
     * @return this rank's optimizer
     * @throws io.jccl.offload.OffloadMemoryException if a tier has no room; everything is freed
     *     then
     * @throws IllegalArgumentException if layers, groups, options and device do not match
     */
    public static ZeroOptimizer create(
            Communicator comm,
            List<ShardedLayer> layers,
            Optimizer optimizer,
            ParameterGroup.Choice groups,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers) {
        return new ZeroOptimizer(
                new ZeroConfig(comm, layers, optimizer, groups, options, scale, tiers), null);
    }

    /**
     * The memory of this rank on a tier.
     *
     * @param tier the tier
     * @return bytes; in a store each version counts
     */
    public Usage usage(Tier tier) {
        return memory.usage(tier);
    }

    /**
     * Steps taken, without skipped ones.
     *
     * @return 0 or more
     */
    public long steps() {
        return progress.steps;
    }

    /**
     * The current factor for the loss.
     *
     * @return the loss scale
     */
    public double lossScale() {
        return config.scale().value();
    }

    /**
     * The layers.
     *
     * @return the layers passed to {@link #create}
     */
    public List<ShardedLayer> layers() {
        return config.layers();
    }

    private Part part(int layer) {
        progress.checkOpen();
        if (layer < 0 || layer >= parts.size()) {
            throw new IndexOutOfBoundsException(
                    "layer is " + layer + ", expected 0 to " + (parts.size() - 1));
        }
        return parts.get(layer);
    }

    /**
     * Makes a layer's parameters available on the device and waits for them; the next layer, in the
     * direction of the last two calls, is prefetched. At stage 3 this is a collective: all ranks
     * gather and release in the same order. Up to stage 2 with parameters on tier {@link
     * Tier#DEVICE} they are always there, and which layers are held is not checked.
     *
     * @param layer index of the layer
     * @return its parameters, read-only, valid until {@link #release}: {@link ShardedLayer#count}
     *     elements
     * @throws IllegalStateException if too many layers are held
     * @throws JcclException if a rank failed or a store cannot be read; in the latter case the call
     *     can be repeated
     */
    public Buffer gather(int layer) {
        Part p = part(layer);
        progress.checkFresh();
        return windows.gather(p);
    }

    /**
     * As {@link #gather(int)}, but makes a stream wait instead of the calling thread.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there from now on may read the parameters
     * @return the parameters; if they cannot be copied to the device, the gradients of this step
     *     are lost, and {@link #step} reports it
     * @throws IllegalStateException if too many layers are held
     */
    public Buffer gather(int layer, Stream user) {
        Part p = part(layer);
        progress.checkFresh();
        return windows.gather(p, user);
    }

    /**
     * Releases a layer's parameters.
     *
     * @param layer index of the layer; nothing may read its parameters any more
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer) {
        windows.release(part(layer));
    }

    /**
     * Releases a layer's parameters once a stream has reached this point.
     *
     * @param layer index of the layer; work enqueued on the stream so far may read its parameters
     * @param user the stream
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer, Stream user) {
        windows.release(part(layer), user);
    }

    /**
     * The buffer for a layer's gradients of this micro-step. The model adds to its content, which
     * is zero at first, or the sum of earlier micro-steps.
     *
     * @param layer index of the layer
     * @return its gradients, valid until {@link #reduce}: {@link ShardedLayer#count} elements
     * @throws IllegalStateException if the layer had all its micro-steps
     */
    public Buffer gradients(int layer) {
        return gradients.room(part(layer));
    }

    /**
     * Marks a layer's gradients of this micro-step as complete, and starts to reduce them if the
     * stage requires it. All ranks reduce layers in the same order.
     *
     * @param layer index of the layer
     * @throws IllegalStateException if {@link #gradients} was not called before
     * @throws JcclException if a rank failed
     */
    public void reduce(int layer) {
        gradients.reduce(part(layer));
    }

    /**
     * As {@link #reduce(int)}, for gradients that a stream writes. If work on a host's stream has
     * failed, {@link #step} throws on all ranks, and the micro-steps are done again; at stages 0
     * and 1 this call may throw that error.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there so far writes the gradients
     */
    public void reduce(int layer, Stream user) {
        gradients.reduce(part(layer), user);
    }

    /**
     * Discards all gradients since the last step, so that its micro-steps can be repeated. All
     * ranks call it at the same point.
     *
     * @throws JcclException if a rank failed
     */
    public void clearGradients() {
        progress.checkOpen();
        ranks.drain();
        gradients.forget();
    }

    /**
     * Updates the parameters with the gradients of all micro-steps, unless one of them, on any
     * rank, is infinite or not a number. No layer may be held.
     *
     * @param learningRate 0 or more
     * @return the result, until the next step
     * @throws IllegalStateException if micro-steps are missing, or a layer is held
     * @throws JcclException if a rank or a tier failed; see the class description for the resulting
     *     state
     */
    public StepResult step(double learningRate) {
        return step(learningRate, 1);
    }

    /**
     * The sum of squares of the gradients that {@link ParameterGroup#counted count}, over the ranks
     * of the communicator: of their mean over ranks and micro-steps, without the loss scale. With
     * those of other parts of the model it gives the norm of all of it, and so a clipping factor
     * for {@link #step(double, double)}. All ranks call it after the micro-steps.
     *
     * @return 0 or more, infinite or NaN if a gradient is
     * @throws IllegalStateException if micro-steps are missing
     * @throws JcclException as {@link #step(double)}
     */
    public double sumOfSquares() {
        progress.checkOpen();
        gradients.checkComplete();
        gradients.finish();
        double divisor = config.scale().value() * config.size() * config.options().accumulation();
        return gradients.squares(progress.steps + 1, true) / divisor / divisor;
    }

    /**
     * As {@link #step(double)}, with gradients multiplied by a factor first.
     *
     * @param learningRate 0 or more
     * @param clip more than 0; 1 leaves gradients as they are
     * @return the result, until the next step; its norm is that before the multiplication
     * @throws IllegalStateException if micro-steps are missing, a layer is held, or {@link
     *     #restore}'s largest number of steps has been taken
     * @throws JcclException as {@link #step(double)}
     */
    public StepResult step(double learningRate, double clip) {
        progress.checkOpen();
        progress.checkState(); // stale parameters are rewritten
        if (progress.steps >= Checkpoint.MOST_STEPS) {
            throw new IllegalStateException(
                    "there were %s steps, the most that files can number; restore fewer"
                            .formatted(progress.steps));
        }
        if (!(learningRate >= 0 && learningRate <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the learning rate is " + learningRate + ", expected 0 or more");
        }
        if (!(clip > 0 && clip <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the clipping factor is " + clip + ", expected more than 0");
        }
        gradients.checkComplete();
        windows.checkFree();
        gradients.finish();
        RuntimeException e = windows.drop();
        if (e != null) {
            gradients.lost(e);
        }
        return update.step(learningRate, clip);
    }

    /**
     * Recreates the parameters from the master parameters. Needed only if an error message requires
     * it: after a step failed and restoring the parameters failed too. All ranks call it.
     *
     * @throws JcclException if a rank or a tier failed; the call can be repeated
     */
    public void refresh() {
        progress.checkOpen();
        progress.checkState();
        windows.drop();
        update.refresh(true);
    }

    /**
     * Restores the state before the last step, for example if another rank died during it. All
     * remaining ranks call it; it does not communicate. Afterwards save the state with {@link
     * #saveAlone}; training continues after {@link #load}.
     *
     * @throws IllegalStateException if that state is not kept, or this was called for the step
     *     already
     */
    public void undoStep() {
        progress.checkOpen();
        update.undo();
    }

    /** Provides the initial values of a tensor. */
    @FunctionalInterface
    public interface Initializer {
        /**
         * Fills one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param values float32 in host memory, all zero
         */
        void fill(String layer, String tensor, Buffer values);
    }

    /** Provides parameters and moments of a tensor. */
    @FunctionalInterface
    public interface StateInitializer {
        /**
         * Fills parameters or a moment of one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param moment index of the moment, -1 for the parameters
         * @param values float32 in host memory, all zero
         */
        void fill(String layer, String tensor, int moment, Buffer values);
    }

    /** Receives the values of a tensor. */
    @FunctionalInterface
    public interface Visitor {
        /**
         * Reads one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param values float32 in host memory, valid until the call returns
         */
        void visit(String layer, String tensor, Buffer values);
    }

    /**
     * Sets all parameters, and resets moments and the number of steps to zero. All ranks call it.
     *
     * @param initializer provides the values, the same on all ranks
     * @throws JcclException if values differ between ranks, or a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#PINNED} has no room for
     *     one layer in float32
     */
    public void initialize(Initializer initializer) {
        clearGradients();
        windows.drop();
        values.initialize(initializer);
        update.refresh(true);
    }

    /**
     * Sets all parameters and moments, such as those of a run with another layout. All ranks call
     * it. The loss scale stays as it is.
     *
     * @param steps the number of steps that led to them, 0 to 999,999,999,999
     * @param initializer provides the values, the same on all ranks
     * @throws IllegalArgumentException if the number is out of range
     * @throws JcclException as {@link #initialize}
     * @throws io.jccl.offload.OffloadMemoryException as {@link #initialize}
     */
    public void restore(long steps, StateInitializer initializer) {
        progress.checkOpen();
        if (steps < 0 || steps > Checkpoint.MOST_STEPS) {
            throw new IllegalArgumentException(
                    "the number of steps is %s, expected 0 to %s"
                            .formatted(steps, Checkpoint.MOST_STEPS));
        }
        clearGradients();
        windows.drop();
        values.restore(steps, initializer);
        update.refresh(true);
    }

    /**
     * Passes all master parameters to every rank, layer by layer. All ranks call it.
     *
     * @param visitor receives them
     * @throws JcclException if a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#DEVICE} (or on a GPU
     *     {@link Tier#PINNED}) has no room for one layer in float32
     */
    public void forEachParameter(Visitor visitor) {
        progress.checkOpen();
        progress.checkState();
        values.forEach(0, visitor);
    }

    /**
     * Passes a moment of all parameters to every rank, layer by layer. All ranks call it.
     *
     * @param moment its index
     * @param visitor receives it
     * @throws IndexOutOfBoundsException if the optimizer has no such moment
     * @throws JcclException if a rank failed
     * @throws io.jccl.offload.OffloadMemoryException as {@link #forEachParameter}
     */
    public void forEachMoment(int moment, Visitor visitor) {
        progress.checkOpen();
        progress.checkState();
        values.forEach(1 + Objects.checkIndex(moment, config.optimizer().moments()), visitor);
    }

    /**
     * Saves master parameters in float32 and the optimizer's state in its own types, each rank its
     * block, to a new file in {@code folder/step-N}. All ranks call it, with the same folder.
     * Existing files are kept; a file gets its name once it is completely on the disk, and a step
     * with missing files is not loaded.
     *
     * @param folder the target; it is created if it does not exist
     * @throws IOException if this rank cannot write
     * @throws JcclException if another rank failed; the files are then not a checkpoint
     */
    public void save(Path folder) throws IOException {
        progress.checkOpen();
        progress.checkState();
        values.save(folder);
    }

    /**
     * Saves the state of this rank without the others: at stage 0 all state, else its block, which
     * {@link #load} accepts once all other blocks of this step exist too.
     *
     * @param folder as for {@link #save}
     * @throws IOException if writing fails
     */
    public void saveAlone(Path folder) throws IOException {
        progress.checkOpen();
        progress.checkState();
        values.saveAlone(folder);
    }

    /**
     * Loads the newest step with all of its files, saved by any number of ranks at any stage and
     * from any tier. All ranks call it. Everything is checked before anything is changed.
     *
     * @param folder the folder passed to {@link #save}
     * @return the number of steps taken when it was saved
     * @throws IOException if there is no complete step, or a file is damaged or of another model;
     *     the message names it
     * @throws JcclException if another rank failed
     */
    public long load(Path folder) throws IOException {
        progress.checkOpen();
        Checkpoint checkpoint = values.find(folder);
        clearGradients();
        windows.drop();
        values.load(checkpoint, folder);
        update.refresh(true);
        return progress.steps;
    }

    /**
     * Waits for parameters that are being gathered, and frees all memory. Closing twice does
     * nothing.
     *
     * @throws JcclException if the calling thread was interrupted and the other ranks do not
     *     gather: the memory is still written to, and is not freed. Abort the communicator, and
     *     close again
     */
    @Override
    public void close() {
        if (progress.closed) {
            return;
        }
        windows.settle();
        progress.closed = true;
        memory.close();
    }

    @Override
    public String toString() {
        return "ZeRO stage %s on rank %s of %s, step %s"
                .formatted(config.stage(), config.rank(), config.size(), progress.steps);
    }
}

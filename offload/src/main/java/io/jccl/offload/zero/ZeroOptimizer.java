package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * One rank's part of training whose optimizer state, gradients and parameters are sharded over the
 * ranks of a communicator, and live on any tier. With <i>n</i> ranks each layer is cut into n
 * blocks of the same count, of which rank i owns block i.
 *
 * <p>A step goes so, on every rank in the same order: {@link #gather} a layer before its forward or
 * backward computation and {@link #release} it after; {@link #gradients} gives room to which
 * gradients are added, {@link #reduce} says that they are there; after all micro-steps {@link
 * #step} updates parameters. What each stage does:
 *
 * <ul>
 *   <li>0: gradients are added up locally, and by allReduce after the last micro-step; every rank
 *       updates all parameters.
 *   <li>1: the same with reduceScatter; each rank updates its block, and allGather spreads it.
 *   <li>2: reduceScatter after every micro-step, into an accumulator of this rank's block.
 *   <li>3: parameters too exist only as this rank's block, and are gathered layer by layer.
 * </ul>
 *
 * <p>Gradients count as the mean over ranks and micro-steps. They are added up as they are, and
 * divided, in the same multiplication as loss scale and clipping, in the update. The update runs on
 * the CPU; so on a GPU gradients and optimizer state live on another tier than {@link Tier#DEVICE}.
 *
 * <p><b>Memory:</b> all of it is taken when the optimizer is made, see {@link #usage}, except for
 * one layer in float32 during {@link #initialize} and {@link #forEachParameter}.
 *
 * <p><b>Errors:</b> if a step fails, state is as before it or as after it, never between; {@link
 * #steps} tells. If the communicator lives (a store fails, on any rank), all ranks get an error and
 * are back before the step, and {@link #step} may be called again. If it is broken, only {@link
 * #saveAlone}, {@link #undoStep} and {@link #close} are left; state is as before the step if the
 * failure came before the update, or if the previous state is kept.
 *
 * <p><b>Threads:</b> one at a time, the one that uses the communicator.
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

    private ZeroOptimizer(ZeroConfig config) {
        this.config = config;
        this.progress = new Progress(config.rank());
        this.memory = new Memory(config);
        try {
            this.ranks = new Ranks(config, memory);
            for (int i = 0; i < config.layers().size(); i++) {
                parts.add(new Part(config, memory, i));
            }
            this.windows = new GatherWindows(config, ranks, parts, memory);
            this.gradients = new Gradients(config, ranks, parts, memory);
            ParameterPublisher publisher =
                    new ParameterPublisher(config, ranks, parts, windows, memory);
            this.states = new OptimizerStates(config, parts, memory);
            this.update = new Update(config, ranks, progress, parts, states, gradients, publisher);
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
     * Takes memory for one rank. All ranks pass the same but for communicator, loss scale and
     * tiers. Then {@link #initialize} or {@link #load} sets the parameters.
     *
     * @param comm this rank's end
     * @param layers the model's parameters, in the order of the forward computation
     * @param optimizer the update rule
     * @param options what is sharded, and where it lives
     * @param scale the loss scale; an object of this rank's own, which {@link #step} adapts
     * @param tiers memory of this rank; the caller closes it afterwards
     * @return this rank's optimizer
     * @throws io.jccl.offload.OffloadMemoryException if a tier has no room; all is given back then
     * @throws IllegalArgumentException if layers, options and device do not fit together
     */
    public static ZeroOptimizer create(
            Communicator comm,
            List<ShardedLayer> layers,
            Optimizer optimizer,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers) {
        return new ZeroOptimizer(new ZeroConfig(comm, layers, optimizer, options, scale, tiers));
    }

    /**
     * What this rank holds on a tier.
     *
     * @param tier which
     * @return bytes; those in a store count each version
     */
    public Usage usage(Tier tier) {
        return memory.usage(tier);
    }

    /**
     * Steps that were taken, those that were skipped left out.
     *
     * @return 0 or more
     */
    public long steps() {
        return progress.steps;
    }

    /**
     * What the loss is to be multiplied by now.
     *
     * @return the loss scale
     */
    public double lossScale() {
        return config.scale().value();
    }

    /**
     * The layers.
     *
     * @return as they were passed to {@link #create}
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
     * Makes a layer's parameters ready on the device and waits for them; those of the next layer,
     * in the direction of the last two calls, begin to come. At stage 3 this is a collective: all
     * ranks gather and release in the same order.
     *
     * @param layer index of the layer
     * @return its parameters, to read only, until {@link #release}: {@link ShardedLayer#count}
     *     elements
     * @throws IllegalStateException if too many layers are held
     * @throws JcclException if a rank failed or a store cannot be read; in the latter case the call
     *     can be made again
     */
    public Buffer gather(int layer) {
        Part p = part(layer);
        progress.checkFresh();
        return windows.gather(p);
    }

    /**
     * As {@link #gather(int)}, but lets a stream wait instead of the calling thread.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there from now on may read the parameters
     * @return the parameters; if they cannot be copied to the device, the gradients of this step
     *     are lost, and {@link #step} says so
     * @throws IllegalStateException if too many layers are held
     */
    public Buffer gather(int layer, Stream user) {
        Part p = part(layer);
        progress.checkFresh();
        return windows.gather(p, user);
    }

    /**
     * Lets go of a layer's parameters.
     *
     * @param layer index of the layer; nothing reads its parameters any more
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer) {
        windows.release(part(layer));
    }

    /**
     * Lets go of a layer's parameters once a stream has come so far.
     *
     * @param layer index of the layer; work enqueued on the stream so far may read its parameters
     * @param user the stream
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer, Stream user) {
        windows.release(part(layer), user);
    }

    /**
     * Room for a layer's gradients of this micro-step. The model adds to what is there; at the
     * first call it is zero, unless earlier micro-steps have added to it.
     *
     * @param layer index of the layer
     * @return its gradients, until {@link #reduce}: {@link ShardedLayer#count} elements
     * @throws IllegalStateException if the layer had all its micro-steps
     */
    public Buffer gradients(int layer) {
        return gradients.room(part(layer));
    }

    /**
     * Says that a layer's gradients of this micro-step are complete; they begin to be reduced where
     * the stage has it. All ranks reduce layers in the same order.
     *
     * @param layer index of the layer
     * @throws IllegalStateException if {@link #gradients} was not called before
     * @throws JcclException if a rank failed
     */
    public void reduce(int layer) {
        gradients.reduce(part(layer));
    }

    /**
     * As {@link #reduce(int)}, of gradients that a stream writes.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there so far writes the gradients
     */
    public void reduce(int layer, Stream user) {
        gradients.reduce(part(layer), user);
    }

    /**
     * Forgets all gradients since the last step, so that its micro-steps can be done again. All
     * ranks call it at the same place.
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
     * rank, is infinite or not a number. No layer is held.
     *
     * @param learningRate 0 or more
     * @return how it ended
     * @throws IllegalStateException if micro-steps are missing, or a layer is held
     * @throws JcclException if a rank or a tier failed; see the class about what is left
     */
    public StepResult step(double learningRate) {
        progress.checkOpen();
        progress.checkState(); // stale parameters are written anew
        if (!(learningRate >= 0 && learningRate <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the learning rate is " + learningRate + ", expected 0 or more");
        }
        gradients.checkComplete();
        List<String> held = windows.held();
        if (!held.isEmpty()) {
            throw new IllegalStateException(held + " are held: release them before the step");
        }
        gradients.finish();
        RuntimeException e = windows.drop();
        if (e != null) {
            gradients.lost(e);
        }
        return update.step(learningRate);
    }

    /**
     * Makes the parameters anew from the master parameters. It is needed only where an error says
     * so: after a step failed, and putting back the parameters failed too. All ranks call it.
     *
     * @throws JcclException if a rank or a tier failed; the call can be made again
     */
    public void refresh() {
        progress.checkOpen();
        progress.checkState();
        windows.drop();
        update.refresh(true);
    }

    /**
     * Goes back to the state of before the last step that was taken, such as when another rank died
     * in it and this one did not. All ranks call it that are left; it does not communicate.
     * Afterwards save what there is with {@link #saveAlone}; training goes on after {@link #load}.
     *
     * @throws IllegalStateException if that state is not kept, or this was called for the step
     *     already
     */
    public void undoStep() {
        progress.checkOpen();
        update.undo();
    }

    /** Gives the initial values of a tensor. */
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

    /** Gets the values of a tensor. */
    @FunctionalInterface
    public interface Visitor {
        /**
         * Reads one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param values float32 in host memory, until the call returns
         */
        void visit(String layer, String tensor, Buffer values);
    }

    /**
     * Sets all parameters; moments become zero, and the steps begin at 0. All ranks call it.
     *
     * @param initializer gives the values, the same on all ranks
     * @throws JcclException if values differ between ranks, or a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#PINNED} has no room for
     *     one layer in float32
     */
    public void initialize(Initializer initializer) {
        progress.checkOpen();
        gradients.forget();
        windows.drop();
        values.initialize(initializer);
        update.refresh(true);
    }

    /**
     * Shows every rank all master parameters, one layer after the other. All ranks call it.
     *
     * @param visitor gets them
     * @throws JcclException if a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#DEVICE} (or on a GPU
     *     {@link Tier#PINNED}) has no room for one layer in float32
     */
    public void forEachParameter(Visitor visitor) {
        progress.checkOpen();
        progress.checkState();
        values.forEach(visitor);
    }

    /**
     * Saves parameters and moments in float32, each rank its block, to a new file in {@code
     * folder/step-N}. All ranks call it, with one folder that all can reach. What is there stays; a
     * file gets its name once all of it is on the disk, and a step of which files are missing is
     * not loaded.
     *
     * @param folder where; it is made if it is not there
     * @throws IOException if this rank cannot write
     * @throws JcclException if another rank failed; the files are no checkpoint then
     */
    public void save(Path folder) throws IOException {
        progress.checkOpen();
        progress.checkState();
        values.save(folder);
    }

    /**
     * Saves what this rank holds, without the others: at stage 0 all state, else its block, which
     * {@link #load} takes once all other blocks of this step are there too.
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
     * Loads the newest step of which all files are there, saved by any number of ranks at any stage
     * and from any tier. All ranks call it. Everything is checked before anything is changed.
     *
     * @param folder that was passed to {@link #save}
     * @return the number of steps taken when it was saved
     * @throws IOException if there is no whole step, or a file is damaged or of another model; the
     *     message names it
     * @throws JcclException if another rank failed
     */
    public long load(Path folder) throws IOException {
        progress.checkOpen();
        Checkpoint checkpoint = values.find(folder);
        gradients.forget();
        windows.drop();
        values.load(checkpoint, folder);
        update.refresh(true);
        return progress.steps;
    }

    /** Gives all memory back. Closing twice does nothing. */
    @Override
    public void close() {
        if (progress.closed) {
            return;
        }
        progress.closed = true;
        windows.settle();
        memory.close();
    }

    @Override
    public String toString() {
        return "ZeRO stage "
                + config.stage()
                + " on rank "
                + config.rank()
                + " of "
                + config.size()
                + ", step "
                + progress.steps;
    }
}

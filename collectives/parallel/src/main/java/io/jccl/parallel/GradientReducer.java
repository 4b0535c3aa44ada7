package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import io.jccl.internal.Deadline;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Averages gradients over ranks, overlapped with the backward pass, as PyTorch's
 * DistributedDataParallel does (Li et al., <a href="https://arxiv.org/abs/2006.15704">arXiv
 * 2006.15704</a>).
 *
 * <p>Gradients are stored in buckets, filled from the last parameter to the first. As soon as all
 * gradients of a bucket are {@linkplain #ready ready} and all earlier buckets have been launched,
 * its reduction is enqueued on the reducer's own stream and communicator. A step is
 *
 * {@snippet class="snippets.Parallel" region="reducer"}
 *
 * <p><b>Mean or sum:</b> over ranks gradients are averaged: their sum divided by the number of
 * ranks. So let each rank's loss be the mean over its own samples. Passes of one step are added up,
 * not averaged: divide the loss by their number.
 *
 * <p><b>Accumulation:</b> a pass that began with {@code begin(false)} does not communicate. The
 * caller adds its gradients to the existing values; the reducer changes gradients only in passes
 * that communicate, and clears them only in {@link #zero}.
 *
 * <p><b>Unused parameters:</b> a parameter is unused in a step if no pass since the last
 * communication marked it ready. With {@link ReducerOptions#findUnused} its gradient on this rank
 * counts as zero, and {@link #isUsed} reports afterwards whether any rank used it; if none did, its
 * gradient is zero, but for error feedback of a compression. Otherwise {@link #finish} throws an
 * {@link IllegalStateException} that names it, and all other ranks throw a {@link
 * io.jccl.RankFailedException} that names it too.
 *
 * <p><b>Devices:</b> on GPUs, NCCL averages gradients, and {@link #ready(int, Stream)} takes the
 * stream on which they are computed; {@link io.jccl.compute.Compute#axpy} adds a pass's gradients
 * to those of earlier passes. All {@linkplain Compression compressions} work on GPUs.
 *
 * <p><b>Errors:</b> if a rank dies or hangs, {@link #ready} or {@link #finish} throws within the
 * communicator's timeout. After any {@link JcclException} the reducer is unusable and can only be
 * {@linkplain #close closed}. It uses its own communicator, split off the one passed to {@link
 * #create}, which remains usable.
 *
 * <p><b>Threads:</b> one thread at a time.
 */
public final class GradientReducer implements AutoCloseable {
    /**
     * A parameter of the model. A tensor with two or more dimensions counts as a matrix: its first
     * dimension by the product of the others.
     *
     * @param name name for messages
     * @param rows of the matrix; 1 for a vector
     * @param columns of the matrix, or elements of the vector
     * @param type float16, bfloat16, float32 or float64
     */
    public record Parameter(String name, long rows, long columns, DataType type) {
        /** Checks the shape. */
        public Parameter {
            Objects.requireNonNull(name, "name");
            Objects.requireNonNull(type, "type");
            if (rows < 1 || columns < 1 || rows > Long.MAX_VALUE / 16 / columns) {
                throw new IllegalArgumentException(
                        "parameter '%s' has %s x %s elements, expected 1 or more each"
                                .formatted(name, rows, columns));
            }
        }

        /**
         * A vector, or a tensor whose shape does not matter.
         *
         * @param name name for messages
         * @param count number of elements
         * @param type element type
         */
        public Parameter(String name, long count, DataType type) {
            this(name, 1, count, type);
        }

        /**
         * Number of elements.
         *
         * @return rows times columns
         */
        public long count() {
            return rows * columns;
        }
    }

    private static final int MOST_NAMED = 10;

    private enum Phase {
        IDLE,
        ACCUMULATE,
        COMMUNICATE
    }

    private final Communicator own;
    private final Stream stream;
    private final List<Parameter> parameters;
    private final GradientBuckets buckets;

    /** Whether each parameter has become ready in this pass, and since the last communication. */
    private final boolean[] ready;

    private final boolean[] used;

    /** One byte per parameter: whether any rank used it; null if all parameters must be used. */
    private final @Nullable Buffer flags;

    private final MemorySegment hostFlags;

    private Phase phase = Phase.IDLE;

    /** The bucket to launch next. */
    private int next;

    private @Nullable Throwable failure;
    private boolean closed;

    private GradientReducer(Communicator own, List<Parameter> parameters, ReducerOptions options) {
        this.own = own;
        this.parameters = parameters;
        int n = parameters.size();
        ready = new boolean[n];
        used = new boolean[n];
        buckets = new GradientBuckets(own, parameters, options);
        Buffer allocated = null;
        try {
            allocated = options.findUnused() ? own.device().allocate(DataType.UINT8, n) : null;
            hostFlags = Arena.ofAuto().allocate(n);
            stream = own.device().newStream();
        } catch (RuntimeException | Error e) {
            try {
                Closing.all(allocated == null ? List.of(buckets) : List.of(allocated, buckets));
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
        flags = allocated;
    }

    /**
     * Creates a reducer. All ranks call it; it waits for them.
     *
     * @param c the ranks that hold replicas, such as {@link Mesh#group(String)} of the data axis;
     *     not closed by the reducer and usable as before
     * @param parameters the parameters in the order of the forward pass, the same on all ranks
     * @param options settings, the same on all ranks
     * @return this rank's reducer
     * @throws IllegalArgumentException on all ranks, if there are no parameters, a type is not
     *     floating-point or is float8, or the adaptive sum is requested but not possible
     * @throws io.jccl.CollectiveMismatchException if the ranks disagree; the message names the
     *     first difference
     * @throws JcclException if memory cannot be allocated
     */
    public static GradientReducer create(
            Communicator c, List<Parameter> parameters, ReducerOptions options) {
        Objects.requireNonNull(c, "c");
        List<Parameter> copy = List.copyOf(parameters);
        // Checked first, so that no rank throws while others wait for it.
        ConsistencyCheck.check(
                c,
                "the parameters or options of a gradient reducer",
                GradientBuckets.describe(c, copy, options));
        GradientBuckets.check(c, copy, options);
        Communicator own = Objects.requireNonNull(c.split(0, c.rank()), "a split with a colour");
        try {
            return new GradientReducer(own, copy, options);
        } catch (RuntimeException | Error e) {
            own.close();
            throw e;
        }
    }

    /**
     * The gradient of a parameter: a view of its bucket, aligned to 64 bytes. After {@link #finish}
     * it holds the mean.
     *
     * @param parameter index in the list
     * @return the same view every time; closed with the reducer
     */
    public Buffer gradient(int parameter) {
        return buckets.gradients[checkParameter(parameter)];
    }

    /**
     * State that compression carries from step to step on this rank: the error feedback and, for
     * {@link Compression.PowerSgd}, the thin matrices from which the next step starts. For a
     * checkpoint, copy the elements between two passes; copied back into a reducer with the same
     * parameters, options, rank and number of ranks, training continues with identical bits. Set to
     * zero on all ranks, compression starts as in a new reducer.
     *
     * @return the same views of the device's memory every time, of float32, and for PowerSGD also
     *     one int64 for each bucket; empty if the compression has no state
     */
    public List<Buffer> carried() {
        return buckets.carried();
    }

    /**
     * Begins a backward pass.
     *
     * @param communicate whether {@link #finish} averages over all ranks; the same on all ranks. If
     *     false, gradients keep the caller's values, to be added to in the next pass
     * @throws IllegalStateException if the previous pass was not finished
     * @throws JcclException if buckets are {@linkplain ReducerOptions#withTuning tuned}, and
     *     another rank has failed or memory cannot be allocated
     */
    public void begin(boolean communicate) {
        checkUsable();
        if (phase != Phase.IDLE) {
            throw new IllegalStateException("begin in the middle of a pass; finish that one first");
        }
        try {
            buckets.begin(communicate, stream);
        } catch (RuntimeException e) {
            throw failed(e);
        }
        phase = communicate ? Phase.COMMUNICATE : Phase.ACCUMULATE;
        Arrays.fill(ready, false);
        next = 0;
    }

    /**
     * As {@link #ready(int, Stream)}, with the gradient computed on the device's default stream.
     *
     * @param parameter index in the list
     */
    public void ready(int parameter) {
        ready(parameter, own.device().defaultStream());
    }

    /**
     * Marks a parameter's gradient as complete for this pass once the work enqueued so far on a
     * stream has run. Parameters may become ready in any order. If work on a host's stream has
     * failed, {@link #finish} throws that error, and the other ranks throw one that names it.
     *
     * @param parameter index in the list
     * @param madeOn the stream on which the gradient is computed, of the communicator's device
     * @throws IllegalStateException if no pass was begun, the parameter is already ready, or the
     *     stream is closed; the call then has no effect
     * @throws JcclException if another rank has failed
     */
    public void ready(int parameter, Stream madeOn) {
        checkUsable();
        Objects.requireNonNull(madeOn, "madeOn");
        checkParameter(parameter);
        if (phase == Phase.IDLE) {
            throw new IllegalStateException(
                    named(parameter) + " is ready, but no pass was begun; call begin first");
        }
        if (ready[parameter]) {
            throw new IllegalStateException(
                    named(parameter)
                            + " is ready for the second time in one pass; a parameter used several"
                            + " times is ready once all of its gradient is there");
        }
        Bucket bucket = buckets.of[parameter];
        bucket.madeOn(madeOn);
        ready[parameter] = true;
        used[parameter] = true;
        if (phase == Phase.COMMUNICATE) {
            bucket.arrived();
            if (bucket.isComplete()) {
                launchComplete();
            }
        }
    }

    /** Buckets are launched in the same order on all ranks, whatever the order of gradients. */
    private void launchComplete() {
        try {
            while (next < buckets.all.length && buckets.all[next].isComplete()) {
                buckets.all[next++].launch(stream);
            }
        } catch (RuntimeException e) {
            throw failed(e);
        }
    }

    /**
     * Ends a pass; after {@code begin(true)}, waits until all gradients hold the mean. Collectives
     * have the timeout of the communicator.
     *
     * @throws IllegalStateException if no pass was begun, or a required parameter was not used; the
     *     message names it
     * @throws JcclException if a rank has failed, or the timeout has passed
     */
    public void finish() {
        finish(Deadline.FOREVER);
    }

    /**
     * Ends a pass with a timeout; if it passes, the reducer is unusable on all ranks.
     *
     * @param timeout maximum time to wait
     * @throws IllegalStateException if no pass was begun, or a required parameter was not used; the
     *     message names it
     * @throws JcclException if a rank has failed, or the timeout has passed
     */
    public void finish(Duration timeout) {
        checkUsable();
        if (phase == Phase.IDLE) {
            throw new IllegalStateException("finish without a pass; call begin first");
        }
        if (phase == Phase.COMMUNICATE) {
            communicate(timeout);
        }
        phase = Phase.IDLE;
    }

    private void communicate(Duration timeout) {
        if (flags == null) {
            requireAllUsed();
        }
        try {
            for (int p = 0; p < ready.length; p++) {
                if (!ready[p]) {
                    if (!used[p]) {
                        // Leftovers of an earlier step must not count.
                        buckets.gradients[p].zero();
                    }
                    buckets.of[p].arrived();
                }
            }
            launchComplete();
            if (flags != null) {
                for (int p = 0; p < used.length; p++) {
                    hostFlags.set(ValueLayout.JAVA_BYTE, p, (byte) (used[p] ? 1 : 0));
                }
                flags.copyFrom(hostFlags);
                own.allReduce(flags, ReduceOp.MAX, stream);
            }
            stream.synchronize(timeout);
            if (flags != null) {
                flags.copyTo(hostFlags);
            }
        } catch (RuntimeException e) {
            throw failed(e);
        }
        Arrays.fill(used, false);
        buckets.end();
    }

    private void requireAllUsed() {
        List<String> missing = null;
        for (int p = 0; p < used.length; p++) {
            if (!used[p]) {
                missing = missing == null ? new ArrayList<>() : missing;
                missing.add(named(p));
            }
        }
        if (missing != null) {
            int more = Math.max(0, missing.size() - MOST_NAMED);
            String names = String.join(", ", missing.subList(0, missing.size() - more));
            names += more > 0 ? " and " + more + " more" : "";
            IllegalStateException e =
                    new IllegalStateException(
                            ("no gradient was ready for %s on rank %s; if a pass may leave"
                                            + " parameters out, set findUnused")
                                    .formatted(names, own.rank()));
            throw failed(e);
        }
    }

    /** Aborts the other ranks, so that none waits for this one. */
    private RuntimeException failed(RuntimeException e) {
        if (failure == null) {
            failure = e;
            own.abort("gradient reducer: " + e.getMessage());
        }
        return e;
    }

    /**
     * Whether any rank used a parameter in the last step that communicated.
     *
     * @param parameter index in the list
     * @return false if no rank did: its gradient is zero or, with {@link Compression.TopK} and
     *     {@link Compression.PowerSgd}, error feedback alone; zero gradients an optimizer may skip.
     *     Always true without {@link ReducerOptions#findUnused}
     */
    public boolean isUsed(int parameter) {
        checkParameter(parameter);
        return flags == null || hostFlags.get(ValueLayout.JAVA_BYTE, parameter) != 0;
    }

    /**
     * Sets all gradients to zero, on the calling thread.
     *
     * @throws IllegalStateException during a pass
     */
    public void zero() {
        checkUsable();
        if (phase != Phase.IDLE) {
            throw new IllegalStateException("zero in the middle of a pass; finish that one first");
        }
        buckets.zero();
    }

    /**
     * Number of gradient buckets, each reduced by its own collective.
     *
     * @return 1 or more
     */
    public int bucketCount() {
        return buckets.all.length;
    }

    /**
     * What tuning has found.
     *
     * @return the same on all ranks; empty before {@link #begin} of the first step after all trials
     */
    public Optional<BucketTuning.Result> tuned() {
        return buckets.tuned();
    }

    /**
     * Bytes that this rank contributes in one step, after compression.
     *
     * @return bytes; uncompressed or as narrow floats, with the padding between gradients
     */
    public long wireBytes() {
        return buckets.bytes();
    }

    private String named(int parameter) {
        return "parameter " + parameter + " ('" + parameters.get(parameter).name + "')";
    }

    private int checkParameter(int parameter) {
        if (parameter < 0 || parameter >= ready.length) {
            throw new IllegalArgumentException(
                    "parameter is %s, expected 0 to %s, a place in the list"
                            .formatted(parameter, ready.length - 1));
        }
        return parameter;
    }

    private void checkUsable() {
        if (closed) {
            throw new IllegalStateException("the gradient reducer is closed");
        }
        Throwable f = failure;
        if (f != null) {
            throw new JcclException(
                    "the gradient reducer is unusable since it failed: " + f.getMessage(), f);
        }
    }

    /**
     * Frees the gradients. If called during a pass that communicates, it aborts the pass on all
     * ranks. Closing twice has no effect.
     */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (failure == null && phase == Phase.COMMUNICATE) {
            own.abort("the gradient reducer of rank " + own.rank() + " was closed in a pass");
        }
        List<AutoCloseable> all = new ArrayList<>(List.of(stream, own, buckets));
        if (flags != null) {
            all.add(flags);
        }
        Closing.all(all);
    }

    @Override
    public String toString() {
        return String.format(
                "GradientReducer[%s parameters in %s%s",
                parameters.size(), buckets.all.length, closed ? " buckets, closed]" : " buckets]");
    }
}

package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
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
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Averages gradients over ranks while backward still runs, as PyTorch's DistributedDataParallel
 * does (Li et al., <a href="https://arxiv.org/abs/2006.15704">arXiv 2006.15704</a>).
 *
 * <p>Gradients lie in buckets, several to a run of memory, put together from the last parameter to
 * the first. As soon as all gradients of a bucket are {@linkplain #ready ready}, and all earlier
 * buckets are out, its average is enqueued on the reducer's own stream and communicator. A step is
 *
 * {@snippet class="snippets.Parallel" region="reducer"}
 *
 * <p><b>Accumulation:</b> a pass that began with {@code begin(false)} communicates nothing. The
 * caller adds its gradients to what is there; the reducer never changes a gradient outside {@link
 * #finish} of a pass that communicates, nor clears it afterwards: {@link #zero} does.
 *
 * <p><b>Unused parameters:</b> a parameter is unused in a step if no pass since the last
 * communication said it was ready. With {@link ReducerOptions#findUnused} its gradient on this rank
 * counts as zero, and {@link #isUsed} says afterwards whether any rank used it; if none did, its
 * gradient is zero. Without, {@link #finish} throws {@link IllegalStateException} that names it,
 * and every other rank gets a {@link io.jccl.RankFailedException} that names it too.
 *
 * <p><b>Devices:</b> with GPUs, gradients are averaged by NCCL as they are, and {@link #ready(int,
 * Stream)} takes the stream on which they are made. {@link Compression} needs host memory.
 *
 * <p><b>Errors:</b> a rank that dies or hangs surfaces in {@link #ready} or {@link #finish} within
 * the communicator's timeout. After any {@link JcclException} the reducer is unusable, and {@link
 * #close} is all that is left. It uses a communicator of its own, split off the one it was made
 * with, which stays usable.
 *
 * <p><b>Threads:</b> one thread at a time.
 */
public final class GradientReducer implements AutoCloseable {
    /**
     * What there is a gradient for. One of two or more dimensions is a matrix: its first dimension
     * by the product of the others.
     *
     * @param name for messages
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
                        "parameter '"
                                + name
                                + "' has "
                                + rows
                                + " x "
                                + columns
                                + " elements, expected 1 or more each");
            }
        }

        /**
         * A vector, or anything whose shape does not matter.
         *
         * @param name for messages
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

    private enum Phase {
        IDLE,
        ACCUMULATE,
        COMMUNICATE
    }

    /** Elements of a bucket that top-k can count, places and values in one buffer. */
    private static final long MOST_COUNTED = 1L << 30;

    /** How many names an error lists. */
    private static final int MOST_NAMED = 10;

    private final Communicator own;
    private final Stream stream;
    private final List<Parameter> parameters;
    private final Bucket[] buckets;

    /** Of each parameter. */
    private final Bucket[] bucketOf;

    private final Buffer[] gradients;

    /** Whether each parameter was ready in this pass, and since the last communication. */
    private final boolean[] ready;

    private final boolean[] used;

    /** One byte for each parameter, whether any rank used it; null if all have to. */
    private final @Nullable Buffer flags;

    private final MemorySegment hostFlags;

    private final List<Buffer> carried = new ArrayList<>();
    private Phase phase = Phase.IDLE;

    /** The bucket that goes out next. */
    private int next;

    private @Nullable Throwable failure;
    private boolean closed;

    private GradientReducer(Communicator own, List<Parameter> parameters, ReducerOptions options) {
        this.own = own;
        this.parameters = parameters;
        Device device = own.device();
        int n = parameters.size();
        bucketOf = new Bucket[n];
        gradients = new Buffer[n];
        ready = new boolean[n];
        used = new boolean[n];
        List<AutoCloseable> made = new ArrayList<>();
        try {
            List<Bucket.Plan> plans = Bucket.plan(parameters, options);
            buckets = new Bucket[plans.size()];
            for (int i = 0; i < buckets.length; i++) {
                Bucket.Plan plan = plans.get(i);
                Buffer memory = device.allocate(plan.type(), plan.count());
                made.add(memory);
                Exchange exchange = exchange(plan, memory, options.compression());
                made.add(exchange);
                carried.addAll(exchange.carried());
                buckets[i] = new Bucket(plan, memory, device, exchange);
                for (int k = 0; k < plan.members().size(); k++) {
                    int p = plan.members().get(k);
                    bucketOf[p] = buckets[i];
                    gradients[p] = memory.slice(plan.offsets().get(k), parameters.get(p).count());
                }
            }
            flags = options.findUnused() ? device.allocate(DataType.UINT8, n) : null;
            if (flags != null) {
                made.add(flags);
            }
            hostFlags = Arena.ofAuto().allocate(n);
            stream = device.newStream();
        } catch (RuntimeException | Error e) {
            try {
                Closing.all(made.reversed());
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
    }

    private Exchange exchange(Bucket.Plan plan, Buffer memory, Compression compression) {
        if (plan.type() != DataType.FLOAT32) {
            return new Exchange.Plain(own, memory);
        }
        return switch (compression) {
            case Compression.None none -> new Exchange.Plain(own, memory);
            case Compression.Cast cast -> new Exchange.Cast(own, memory, cast.type());
            case Compression.TopK topK -> new TopKExchange(own, memory, topK.density());
            case Compression.PowerSgd power ->
                    new PowerSgdExchange(own, memory, plan, parameters, power);
        };
    }

    /**
     * Makes a reducer. All ranks call it; it waits for them.
     *
     * @param c the ranks that hold replicas, such as {@link Mesh#group(String)} of the data axis;
     *     not closed by the reducer, and to be used as before
     * @param parameters in the order in which forward uses them, the same on all ranks
     * @param options settings, the same on all ranks
     * @return this rank's reducer
     * @throws IllegalArgumentException if there are no parameters, a type has no mean, or
     *     compression is asked for on a GPU; on all ranks
     * @throws io.jccl.CollectiveMismatchException if the ranks disagree; the message names the
     *     first parameter or setting in which they do
     * @throws JcclException if there is too little memory
     */
    public static GradientReducer create(
            Communicator c, List<Parameter> parameters, ReducerOptions options) {
        Objects.requireNonNull(c, "c");
        List<Parameter> copy = List.copyOf(parameters);
        List<String> lines = new ArrayList<>();
        lines.add(options.toString());
        copy.forEach(p -> lines.add(p.toString()));
        // First, so that no rank throws while others wait for it.
        ConsistencyCheck.check(c, "the parameters or options of a gradient reducer", lines);
        check(c.device(), copy, options);
        Communicator own = Objects.requireNonNull(c.split(0, c.rank()), "a split with a colour");
        try {
            return new GradientReducer(own, copy, options);
        } catch (RuntimeException | Error e) {
            own.close();
            throw e;
        }
    }

    private static void check(Device device, List<Parameter> parameters, ReducerOptions options) {
        if (parameters.isEmpty()) {
            throw new IllegalArgumentException("there are no parameters, expected one or more");
        }
        for (Parameter p : parameters) {
            if (p.type.isInteger() || p.type.size() == 1) {
                throw new IllegalArgumentException(
                        "parameter '"
                                + p.name
                                + "' has the type "
                                + p.type.label()
                                + "; gradients are float16, bfloat16, float32 or float64");
            }
        }
        Compression form = options.compression();
        long most = Math.max(options.bucketBytes(), options.firstBucketBytes()) / Float.BYTES;
        for (Parameter p : parameters) {
            most = p.type == DataType.FLOAT32 ? Math.max(most, p.count()) : most;
        }
        if (form instanceof Compression.TopK && most > MOST_COUNTED) {
            throw new IllegalArgumentException(
                    "a bucket may have "
                            + most
                            + " elements, but top-k counts up to "
                            + MOST_COUNTED
                            + "; make buckets smaller, and split larger parameters");
        }
        if (device.kind() != Device.Kind.HOST && !(form instanceof Compression.None)) {
            throw new IllegalArgumentException(
                    "the ranks compute on "
                            + device
                            + ", but "
                            + form
                            + " needs gradients in host memory; use Compression.NONE, with parameters"
                            + " of a 16-bit type to send less");
        }
    }

    /**
     * Where a parameter's gradient goes: a view into its bucket, aligned to 64 bytes. After {@link
     * #finish} it holds the mean.
     *
     * @param parameter its place in the list
     * @return the same view every time; it ends with the reducer
     */
    public Buffer gradient(int parameter) {
        return gradients[checkParameter(parameter)];
    }

    /**
     * What compression carries from one step to the next on this rank: what of its gradients was
     * not sent yet, and for {@link Compression.PowerSgd} the thin matrices that the next step
     * starts from. A checkpoint that copies the elements between two passes, and back into a
     * reducer with the same parameters and options on the same rank of as many, goes on with the
     * same bits.
     *
     * @return the same views every time, of host memory; empty for compression that carries nothing
     */
    public List<Buffer> carried() {
        return Collections.unmodifiableList(carried);
    }

    /**
     * Begins a pass through backward.
     *
     * @param communicate whether {@link #finish} is to make the mean over all ranks; the same on
     *     all ranks. False leaves what the caller writes as it is, to add to it in the next pass
     * @throws IllegalStateException if the pass before was not finished
     */
    public void begin(boolean communicate) {
        checkUsable();
        if (phase != Phase.IDLE) {
            throw new IllegalStateException("begin in the middle of a pass; finish that one first");
        }
        phase = communicate ? Phase.COMMUNICATE : Phase.ACCUMULATE;
        Arrays.fill(ready, false);
        next = 0;
        for (Bucket b : buckets) {
            b.begin();
        }
    }

    /**
     * Says that a parameter's gradient is complete for this pass, in any order. On a GPU it was
     * made on the default stream.
     *
     * @param parameter its place in the list
     * @throws IllegalStateException if no pass was begun, or the parameter was ready before;
     *     nothing has changed then
     * @throws JcclException if another rank has failed
     */
    public void ready(int parameter) {
        ready(parameter, own.device().defaultStream());
    }

    /**
     * Says that a parameter's gradient will be complete when the work now on a stream has run.
     *
     * @param parameter its place in the list
     * @param madeOn the stream, one of the communicator's device
     * @throws IllegalStateException if no pass was begun, or the parameter was ready before;
     *     nothing has changed then
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
        ready[parameter] = true;
        used[parameter] = true;
        Bucket bucket = bucketOf[parameter];
        bucket.madeOn(madeOn);
        if (phase == Phase.COMMUNICATE) {
            bucket.arrived();
            if (bucket.isComplete()) {
                launchComplete();
            }
        }
    }

    /** The order of buckets is the same on all ranks, whatever the order of gradients. */
    private void launchComplete() {
        try {
            while (next < buckets.length && buckets[next].isComplete()) {
                buckets[next++].launch(stream);
            }
        } catch (RuntimeException e) {
            throw failed(e);
        }
    }

    /**
     * Ends a pass, and after {@code begin(true)} waits until all gradients are the mean.
     * Collectives have the timeout of the communicator.
     *
     * @throws IllegalStateException if no pass was begun, or a parameter was not used that had to
     *     be; the message names it
     * @throws JcclException if a rank has failed, or the time is over
     */
    public void finish() {
        finish(Deadline.FOREVER);
    }

    /**
     * Ends a pass within a time; when it is over, the reducer is unusable on all ranks.
     *
     * @param timeout how long to wait at most
     * @throws IllegalStateException if no pass was begun, or a parameter was not used that had to
     *     be; the message names it
     * @throws JcclException if a rank has failed, or the time is over
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
                        // What an earlier step has left there must not count.
                        gradients[p].zero();
                    }
                    bucketOf[p].arrived();
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
        for (Bucket b : buckets) {
            b.end();
        }
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
            String names =
                    String.join(", ", missing.subList(0, Math.min(MOST_NAMED, missing.size())))
                            + (missing.size() > MOST_NAMED
                                    ? " and " + (missing.size() - MOST_NAMED) + " more"
                                    : "");
            IllegalStateException e =
                    new IllegalStateException(
                            "no gradient was ready for "
                                    + names
                                    + " on rank "
                                    + own.rank()
                                    + "; if a pass may leave parameters out, set findUnused");
            throw failed(e);
        }
    }

    /** Remembers why, and tells the other ranks, so that none waits for this one. */
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
     * @param parameter its place in the list
     * @return false if none did, so that its gradient is zero and an optimizer may skip it; always
     *     true without {@link ReducerOptions#findUnused}
     */
    public boolean isUsed(int parameter) {
        checkParameter(parameter);
        return flags == null || hostFlags.get(ValueLayout.JAVA_BYTE, parameter) != 0;
    }

    /**
     * Sets all gradients to zero, on the calling thread.
     *
     * @throws IllegalStateException in the middle of a pass
     */
    public void zero() {
        checkUsable();
        if (phase != Phase.IDLE) {
            throw new IllegalStateException("zero in the middle of a pass; finish that one first");
        }
        for (Bucket b : buckets) {
            b.memory.zero();
        }
    }

    /**
     * How many collectives of gradients a step has.
     *
     * @return 1 or more
     */
    public int bucketCount() {
        return buckets.length;
    }

    /**
     * What this rank gives in one step, compressed.
     *
     * @return bytes; those between the gradients, for their alignment, included
     */
    public long wireBytes() {
        long sum = 0;
        for (Bucket b : buckets) {
            sum += b.exchange.bytes();
        }
        return sum;
    }

    private String named(int parameter) {
        return "parameter " + parameter + " ('" + parameters.get(parameter).name + "')";
    }

    private int checkParameter(int parameter) {
        if (parameter < 0 || parameter >= gradients.length) {
            throw new IllegalArgumentException(
                    "parameter is "
                            + parameter
                            + ", expected 0 to "
                            + (gradients.length - 1)
                            + ", a place in the list");
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
     * Frees the gradients. In the middle of a pass it aborts the pass on all ranks, after {@code
     * begin(true)}. Closing twice does nothing.
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
        List<AutoCloseable> all = new ArrayList<>(List.of(stream, own));
        all.addAll(Arrays.asList(buckets).reversed());
        if (flags != null) {
            all.add(flags);
        }
        Closing.all(all);
    }

    @Override
    public String toString() {
        return "GradientReducer["
                + parameters.size()
                + " parameters in "
                + buckets.length
                + " buckets"
                + (closed ? ", closed]" : "]");
    }
}

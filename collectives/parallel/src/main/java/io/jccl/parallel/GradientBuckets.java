package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.internal.Closing;
import io.jccl.kernel.Templates;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The buckets of a {@link GradientReducer} and the views of its gradients. Memory has the order of
 * the buckets, from the last parameter of a type to its first, so other sizes of buckets are other
 * slices of it.
 */
final class GradientBuckets implements AutoCloseable {
    /** Most elements of a bucket for top-k, whose indices and values share one buffer. */
    private static final long MOST_COUNTED = 1L << 30;

    private final Communicator own;
    private final List<Parameter> parameters;
    private final ReducerOptions options;

    /** Null if the sizes of buckets are fixed. */
    private final @Nullable BucketTrials trials;

    /** In the order in which they are launched. */
    Bucket[] all = {};

    /** The bucket of each parameter. */
    final Bucket[] of;

    /** The gradient of each parameter. */
    final Buffer[] gradients;

    /**
     * What holds the gradients: one for each bucket, or one for each type if buckets may change.
     */
    private final List<Buffer> memories = new ArrayList<>();

    /** The memory of each parameter. */
    private final Buffer[] within;

    /** The place of each parameter there, in elements. */
    private final long[] place;

    private final List<Buffer> carried = new ArrayList<>();

    /** What compresses; null if nothing does, or the exchanges' own loops do. */
    private @Nullable Compute compute;

    /** What multiplies; null if nothing does. */
    private @Nullable Matmul matmul;

    /** Allocates the buckets on the communicator's device. */
    GradientBuckets(Communicator own, List<Parameter> parameters, ReducerOptions options) {
        this.own = own;
        this.parameters = parameters;
        this.options = options;
        trials = options.tuning().bytes().isEmpty() ? null : new BucketTrials(options.tuning());
        of = new Bucket[parameters.size()];
        gradients = new Buffer[parameters.size()];
        within = new Buffer[parameters.size()];
        place = new long[parameters.size()];
        try {
            compute =
                    switch (options.compression()) {
                        case Compression.None none -> null;
                        // The host adds while it counts: 4 passes instead of 5.
                        case Compression.TopK topK when own.device().kind() == Device.Kind.HOST ->
                                null;
                        default -> Compute.of(own.device());
                    };
            matmul =
                    options.compression() instanceof Compression.PowerSgd
                            ? Matmul.of(own.device(), 1)
                            : null;
            for (Bucket.Plan plan :
                    Bucket.plan(parameters, trials == null ? options : buckets(Long.MAX_VALUE))) {
                Buffer memory = own.device().allocate(plan.type(), plan.count());
                memories.add(memory);
                // Top-k also reads the elements between gradients.
                memory.zero();
                for (int k = 0; k < plan.members().size(); k++) {
                    int p = plan.members().get(k);
                    within[p] = memory;
                    place[p] = plan.offsets().get(k);
                    gradients[p] = memory.slice(place[p], parameters.get(p).count());
                }
            }
            divide(options);
        } catch (RuntimeException | Error e) {
            try {
                close();
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
    }

    /** Options with buckets of a size. */
    private ReducerOptions buckets(long bytes) {
        boolean whole = bytes == Long.MAX_VALUE;
        return options.withBuckets(
                whole ? bytes : Math.min(bytes, options.firstBucketBytes()), bytes);
    }

    /** Begins a pass. All ranks have begun equally many that communicate: they agree on trials. */
    void begin(boolean communicate, Stream stream) {
        if (communicate && trials != null) {
            switch (trials.begin()) {
                case STAY -> {}
                case SWITCH -> divide(buckets(trials.bytes()), stream);
                case DECIDE -> divide(buckets(trials.agree(own, stream).chosenBytes()), stream);
            }
        }
        for (Bucket b : all) {
            b.begin();
        }
    }

    /** Ends a pass that has communicated. */
    void end() {
        for (Bucket b : all) {
            b.end();
        }
        if (trials != null) {
            trials.end(System.nanoTime());
        }
    }

    void zero() {
        for (Buffer memory : memories) {
            memory.zero();
        }
        for (Bucket b : all) {
            b.end();
        }
    }

    /** Bytes that this rank contributes in one step. */
    long bytes() {
        long sum = 0;
        for (Bucket b : all) {
            sum += b.exchange.bytes();
        }
        return sum;
    }

    /** What tuning has found. */
    Optional<BucketTuning.Result> tuned() {
        return trials == null ? Optional.empty() : Optional.ofNullable(trials.result());
    }

    /** As {@link #divide(ReducerOptions)}, in the middle of training. */
    private void divide(ReducerOptions sizes, Stream stream) {
        // Passes that only accumulated may still be computing.
        for (Bucket b : all) {
            b.follow(stream);
        }
        divide(sizes);
    }

    /** Creates buckets in place of the existing ones; gradients keep their values and views. */
    private void divide(ReducerOptions sizes) {
        Bucket[] before = all;
        all = new Bucket[0];
        Closing.all(Arrays.asList(before));
        carried.clear();
        for (Bucket.Plan plan : Bucket.plan(parameters, sizes)) {
            int first = plan.members().getFirst();
            Buffer memory = within[first].slice(place[first], plan.count());
            Exchange exchange = exchange(plan, memory);
            Bucket bucket = new Bucket(plan, memory, own.device(), exchange);
            all = Arrays.copyOf(all, all.length + 1);
            all[all.length - 1] = bucket;
            carried.addAll(exchange.carried());
            for (int p : plan.members()) {
                of[p] = bucket;
            }
        }
    }

    private Exchange exchange(Bucket.Plan plan, Buffer memory) {
        List<AutoCloseable> owned = new ArrayList<>();
        try {
            return exchange(plan, memory, owned);
        } catch (RuntimeException | Error e) {
            Closing.all(owned.reversed());
            throw e;
        }
    }

    private Exchange exchange(Bucket.Plan plan, Buffer memory, List<AutoCloseable> owned) {
        if (options.adasum()) {
            return new AdasumExchange(own, memory, plan, parameters, owned);
        }
        if (plan.type() != DataType.FLOAT32) {
            return new Exchange.Plain(own, memory);
        }
        return switch (options.compression()) {
            case Compression.None none -> new Exchange.Plain(own, memory);
            case Compression.Cast cast ->
                    new Exchange.Cast(
                            own, Objects.requireNonNull(compute), memory, cast.type(), owned);
            case Compression.TopK topK -> {
                long elements = plan.elements(parameters);
                yield new TopKExchange(own, compute, memory, elements, topK.density(), owned);
            }
            case Compression.PowerSgd power ->
                    new PowerSgdExchange(
                            own,
                            Objects.requireNonNull(compute),
                            Objects.requireNonNull(matmul),
                            memory,
                            plan,
                            parameters,
                            power,
                            owned);
        };
    }

    /** What ranks must have in common to get equal bits. */
    static List<String> describe(
            Communicator c, List<Parameter> parameters, ReducerOptions options) {
        List<String> lines = new ArrayList<>();
        lines.add(options.toString());
        if (options.compression() instanceof Compression.PowerSgd
                && c.device().kind() == Device.Kind.HOST) {
            // On the Vector API products are rounded together with the sum.
            lines.add(
                    "PowerSGD %s --add-modules jdk.incubator.vector"
                            .formatted(Templates.VECTOR ? "with" : "without"));
        }
        parameters.forEach(p -> lines.add(p.toString()));
        return lines;
    }

    /** Rejects parameters and options that cannot be reduced by these ranks. */
    static void check(Communicator c, List<Parameter> parameters, ReducerOptions options) {
        if (parameters.isEmpty()) {
            throw new IllegalArgumentException("there are no parameters, expected one or more");
        }
        for (Parameter p : parameters) {
            if (p.type().isInteger() || p.type().size() == 1) {
                throw new IllegalArgumentException(
                        ("parameter '%s' has the type %s; gradients are float16, bfloat16, float32"
                                        + " or float64")
                                .formatted(p.name(), p.type().label()));
            }
        }
        if (options.adasum()) {
            checkAdasum(c, parameters);
        }
        Compression form = options.compression();
        long most = Math.max(options.bucketBytes(), options.firstBucketBytes()) / Float.BYTES;
        for (Parameter p : parameters) {
            most = p.type() == DataType.FLOAT32 ? Math.max(most, p.count()) : most;
        }
        if (form instanceof Compression.TopK && most > MOST_COUNTED) {
            throw new IllegalArgumentException(
                    ("a bucket may have %s elements, but top-k counts up to %s; make buckets"
                                    + " smaller, and split larger parameters")
                            .formatted(most, MOST_COUNTED));
        }
    }

    private static void checkAdasum(Communicator c, List<Parameter> parameters) {
        String found = null;
        if (Integer.bitCount(c.size()) != 1) {
            found = "there are " + c.size() + " ranks, expected a power of two";
        } else if (c.device().kind() != Device.Kind.HOST) {
            found = "the ranks compute on " + c.device() + ", expected the host";
        } else {
            for (Parameter p : parameters) {
                if (p.type() != DataType.FLOAT32) {
                    found =
                            "parameter '%s' has the type %s, expected float32"
                                    .formatted(p.name(), p.type().label());
                }
            }
        }
        if (found != null) {
            throw new IllegalArgumentException(
                    "gradients are to become their adaptive sum, but " + found + "; use the mean");
        }
    }

    /** State of the compression, see {@link GradientReducer#carried}. */
    List<Buffer> carried() {
        return Collections.unmodifiableList(carried);
    }

    @Override
    public void close() {
        List<AutoCloseable> parts = new ArrayList<>(Arrays.asList(all).reversed());
        parts.addAll(memories);
        if (matmul != null) {
            parts.add(matmul);
        }
        if (compute != null) {
            parts.add(compute);
        }
        Closing.all(parts);
    }
}

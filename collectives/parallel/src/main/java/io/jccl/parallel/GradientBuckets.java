package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.Closing;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The buckets of a {@link GradientReducer} and the views of its gradients. */
final class GradientBuckets implements AutoCloseable {
    /** Most elements of a bucket for top-k, whose indices and values share one buffer. */
    private static final long MOST_COUNTED = 1L << 30;

    /** In the order in which they are launched. */
    final Bucket[] all;

    /** The bucket of each parameter. */
    final Bucket[] of;

    /** The gradient of each parameter. */
    final Buffer[] gradients;

    private final List<Buffer> carried = new ArrayList<>();

    /** What converts on a GPU; null if nothing does. */
    private @Nullable Compute converter;

    /** Allocates the buckets on the communicator's device. */
    GradientBuckets(Communicator own, List<Parameter> parameters, ReducerOptions options) {
        of = new Bucket[parameters.size()];
        gradients = new Buffer[parameters.size()];
        List<AutoCloseable> made = new ArrayList<>();
        try {
            // On the host, the reducer's vector loops convert.
            Compute compute =
                    own.device().kind() == Device.Kind.CUDA
                                    && options.compression() instanceof Compression.Cast
                            ? Compute.of(own.device())
                            : null;
            if (compute != null) {
                made.add(compute);
                converter = compute;
            }
            List<Bucket.Plan> plans = Bucket.plan(parameters, options);
            all = new Bucket[plans.size()];
            for (int i = 0; i < all.length; i++) {
                Bucket.Plan plan = plans.get(i);
                Buffer memory = own.device().allocate(plan.type(), plan.count());
                made.add(memory);
                Exchange exchange = exchange(own, parameters, plan, memory, options, compute);
                made.add(exchange);
                carried.addAll(exchange.carried());
                all[i] = new Bucket(plan, memory, own.device(), exchange);
                for (int k = 0; k < plan.members().size(); k++) {
                    int p = plan.members().get(k);
                    of[p] = all[i];
                    gradients[p] = memory.slice(plan.offsets().get(k), parameters.get(p).count());
                }
            }
        } catch (RuntimeException | Error e) {
            try {
                Closing.all(made.reversed());
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
    }

    private static Exchange exchange(
            Communicator own,
            List<Parameter> parameters,
            Bucket.Plan plan,
            Buffer memory,
            ReducerOptions options,
            @Nullable Compute compute) {
        if (options.adasum()) {
            return new AdasumExchange(own, memory, plan, parameters);
        }
        if (plan.type() != DataType.FLOAT32) {
            return new Exchange.Plain(own, memory);
        }
        return switch (options.compression()) {
            case Compression.None none -> new Exchange.Plain(own, memory);
            case Compression.Cast cast ->
                    compute == null
                            ? new Exchange.Cast(own, memory, cast.type())
                            : new Exchange.DeviceCast(own, compute, memory, cast.type());
            case Compression.TopK topK -> new TopKExchange(own, memory, topK.density());
            case Compression.PowerSgd power ->
                    new PowerSgdExchange(own, memory, plan, parameters, power);
        };
    }

    /** Rejects parameters and options that cannot be reduced by these ranks. */
    static void check(Communicator c, List<Parameter> parameters, ReducerOptions options) {
        Device device = c.device();
        if (parameters.isEmpty()) {
            throw new IllegalArgumentException("there are no parameters, expected one or more");
        }
        for (Parameter p : parameters) {
            if (p.type().isInteger() || p.type().size() == 1) {
                throw new IllegalArgumentException(
                        "parameter '"
                                + p.name()
                                + "' has the type "
                                + p.type().label()
                                + "; gradients are float16, bfloat16, float32 or float64");
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
                    "a bucket may have "
                            + most
                            + " elements, but top-k counts up to "
                            + MOST_COUNTED
                            + "; make buckets smaller, and split larger parameters");
        }
        if (device.kind() != Device.Kind.HOST
                && !(form instanceof Compression.None || form instanceof Compression.Cast)) {
            throw new IllegalArgumentException(
                    "the ranks compute on "
                            + device
                            + ", but "
                            + form
                            + (form instanceof Compression.TopK
                                    ? " needs a kernel that selects the largest elements"
                                    : " needs kernels that make columns orthonormal")
                            + ", which is missing; use Compression.Cast, Compression.NONE, or ranks"
                            + " on the host");
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
                            "parameter '"
                                    + p.name()
                                    + "' has the type "
                                    + p.type().label()
                                    + ", expected float32";
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
        if (converter != null) {
            parts.add(converter);
        }
        Closing.all(parts);
    }
}

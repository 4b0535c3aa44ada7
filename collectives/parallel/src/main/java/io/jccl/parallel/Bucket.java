package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;

/** Gradients in one contiguous buffer, which it does not own, reduced by one collective. */
final class Bucket implements AutoCloseable {
    /** Alignment of each gradient in bytes, that of a cache line and of a GPU's widest access. */
    private static final long ALIGNMENT = 64;

    /** The parameters of a bucket. */
    record Plan(DataType type, List<Integer> members, List<Long> offsets, long count) {
        /** Elements of the parameters, without those between them. */
        long elements(List<Parameter> parameters) {
            return members.stream().mapToLong(i -> parameters.get(i).count()).sum();
        }

        int last() {
            return members.getLast();
        }
    }

    /**
     * Assigns parameters to buckets from the last to the first, the order in which the backward
     * pass computes gradients. The buckets are returned in the order in which they will be
     * complete.
     */
    static List<Plan> plan(List<Parameter> parameters, ReducerOptions options) {
        Map<DataType, List<Integer>> open = new EnumMap<>(DataType.class);
        Map<DataType, Long> filled = new EnumMap<>(DataType.class);
        Map<DataType, Long> limit = new EnumMap<>(DataType.class);
        List<Plan> plans = new ArrayList<>();
        for (int i = parameters.size() - 1; i >= 0; i--) {
            Parameter p = parameters.get(i);
            DataType t = p.type();
            long bytes = p.count() * t.size();
            long at = align(filled.getOrDefault(t, 0L));
            List<Integer> members = open.computeIfAbsent(t, x -> new ArrayList<>());
            if (!members.isEmpty()
                    && at + bytes > limit.getOrDefault(t, options.firstBucketBytes())) {
                plans.add(plan(parameters, t, members));
                members.clear();
                limit.put(t, options.bucketBytes());
                at = 0;
            }
            members.add(i);
            filled.put(t, at + bytes);
        }
        open.forEach((t, members) -> plans.add(plan(parameters, t, members)));
        plans.sort(Comparator.comparingInt(Plan::last).reversed());
        return plans;
    }

    private static Plan plan(List<Parameter> parameters, DataType type, List<Integer> members) {
        List<Long> offsets = new ArrayList<>();
        long end = 0;
        for (int i : members) {
            long at = align(end * type.size()) / type.size();
            offsets.add(at);
            end = at + parameters.get(i).count();
        }
        return new Plan(type, List.copyOf(members), List.copyOf(offsets), end);
    }

    private static long align(long bytes) {
        return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }

    final Plan plan;
    final Buffer memory;

    /** How the bucket is reduced; set once, by the reducer. */
    final Exchange exchange;

    private final Device device;

    /** Streams on which gradients of this step are computed, each with its own event. */
    private final List<Stream> streams = new ArrayList<>();

    private final List<Event> events = new ArrayList<>();

    private final Runnable check = this::check;

    private int pending;

    Bucket(Plan plan, Buffer memory, Device device, Exchange exchange) {
        this.plan = plan;
        this.memory = memory;
        this.device = device;
        this.exchange = exchange;
    }

    /** Begins a pass in which all gradients are expected. */
    void begin() {
        pending = plan.members.size();
    }

    /**
     * Records the work enqueued so far on the stream on which a gradient is computed; the stream
     * may be closed afterwards. Work on the host's default stream has already completed.
     */
    void madeOn(Stream stream) {
        if (device.kind() == Device.Kind.HOST && stream == device.defaultStream()) {
            return;
        }
        int i = 0;
        while (i < streams.size() && streams.get(i) != stream) {
            i++;
        }
        if (i == events.size()) {
            events.add(device.newEvent());
        }
        events.get(i).record(stream);
        if (i == streams.size()) {
            streams.add(stream);
        }
    }

    /** A gradient is ready, or will not be computed in this pass. */
    void arrived() {
        pending--;
    }

    boolean isComplete() {
        return pending == 0;
    }

    /** Enqueues the exchange after the work that computes the gradients. */
    void launch(Stream stream) {
        follow(stream);
        exchange.enqueue(stream);
    }

    /** Makes a stream wait for the work that computes the gradients, and fail if that failed. */
    void follow(Stream stream) {
        for (int i = 0; i < streams.size(); i++) {
            stream.waitFor(events.get(i));
        }
        if (!streams.isEmpty() && device.kind() == Device.Kind.HOST) {
            stream.launchHostFunction(check);
        }
    }

    private void check() {
        for (int i = 0; i < streams.size(); i++) {
            Throwable error = events.get(i).error();
            if (error != null) {
                throw new JcclException(
                        "gradients were not computed, because of an error on their stream: "
                                + error.getMessage(),
                        error);
            }
        }
    }

    /** Ends the step, or forgets what was computed. */
    void end() {
        streams.clear();
    }

    @Override
    public void close() {
        List<AutoCloseable> all = new ArrayList<>(events);
        all.add(exchange);
        Closing.all(all);
    }
}

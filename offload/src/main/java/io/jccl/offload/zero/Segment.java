package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.ParameterGroup;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Elements of a part that one rule updates: a tensor, or neighbours of one group. */
final class Segment {
    final ParameterGroup group;

    /** Index in what this rank updates of the part. */
    final long from;

    final long count;

    /** Its tensor in the layer, the first of several of one group. */
    final int tensor;

    /** Slices are kept, so that steps allocate none. */
    private final List<@Nullable Buffer> whole = new ArrayList<>();

    private final List<Buffer> slices = new ArrayList<>();

    Segment(ParameterGroup group, long from, long count, int tensor) {
        this.group = group;
        this.from = from;
        this.count = count;
        this.tensor = tensor;
    }

    /** These elements of a buffer with one for each that this rank updates. */
    Buffer of(Buffer all) {
        if (from == 0 && count == all.count()) {
            return all;
        }
        for (int i = 0; i < whole.size(); i++) {
            if (whole.get(i) == all) {
                return slices.get(i);
            }
        }
        Buffer slice = all.slice(from, count);
        whole.add(all);
        slices.add(slice);
        return slice;
    }

    private @Nullable Buffer target(@Nullable Buffer all) {
        return all == null ? null : of(all);
    }

    void step(
            OptimizerState state,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double rate,
            double factor) {
        group.optimizer()
                .step(
                        state,
                        from,
                        of(gradients),
                        target(target),
                        step,
                        rate * group.rate(),
                        factor);
    }

    void pass(
            int pass,
            double[] totals,
            int at,
            OptimizerState state,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double rate,
            double factor) {
        group.optimizer()
                .pass(
                        pass,
                        totals,
                        at,
                        state,
                        from,
                        of(gradients),
                        target(target),
                        step,
                        rate * group.rate(),
                        factor);
    }

    /** The segments of the elements that a rank updates; the last has the padding too. */
    static List<Segment> of(ZeroConfig config, ShardedLayer layer, long from, long updated) {
        boolean apart = config.optimizer().passes() > 1;
        List<Segment> all = new ArrayList<>();
        long at = 0;
        int number = 0;
        for (ShardedLayer.Tensor t : layer.tensors()) {
            ParameterGroup g = config.groups().of(layer.name(), t.name());
            check(config, g, layer, t, at);
            boolean last = number == layer.tensors().size() - 1;
            long begin = Math.clamp(at - from, 0, updated);
            long end = last ? updated : Math.clamp(at + t.count() - from, 0, updated);
            Segment before = all.isEmpty() ? null : all.getLast();
            if (before != null && !apart && before.group.equals(g)) {
                all.set(
                        all.size() - 1,
                        new Segment(g, before.from, end - before.from, before.tensor));
            } else if (end > begin) {
                all.add(new Segment(g, begin, end - begin, number));
            }
            at += t.count();
            number++;
        }
        for (Segment s : all) {
            if (s.from % config.unit() != 0) {
                throw new IllegalArgumentException(
                        ("a group of layer %s begins at element %s, expected a multiple of %s with"
                                        + " %s: put a tensor of padding before it")
                                .formatted(
                                        layer.name(),
                                        from + s.from,
                                        config.unit(),
                                        config.optimizer().label()));
            }
        }
        return all;
    }

    private static void check(
            ZeroConfig config,
            ParameterGroup group,
            ShardedLayer layer,
            ShardedLayer.Tensor tensor,
            long at) {
        Optimizer rule = group.optimizer();
        if (!rule.label().equals(config.optimizer().label())
                || !rule.state().equals(config.optimizer().state())
                || rule.passes() != config.optimizer().passes()
                || rule.sums() != config.optimizer().sums()) {
            throw new IllegalArgumentException(
                    "the group of %s.%s at %s uses %s, expected a rule with label and state of %s"
                            .formatted(layer.name(), tensor.name(), at, rule, config.optimizer()));
        }
    }
}

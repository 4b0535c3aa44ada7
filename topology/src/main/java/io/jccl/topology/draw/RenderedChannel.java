package io.jccl.topology.draw;

import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * A channel as the pictures show it.
 *
 * @param title such as {@code ring 3, 20 GB/s}
 * @param path the GPUs that it goes through
 * @param hops its hops
 * @param all whether it is every pair at once
 */
record RenderedChannel(String title, String path, List<Hop> hops, boolean all) {
    /** Longer names are cut: they come from a file that anyone may have written. */
    private static final int NAME = 40;

    /** The channels of a plan, if there is one. */
    static List<RenderedChannel> of(@Nullable Plan plan) {
        if (plan == null) {
            return List.of();
        }
        Topology t = plan.topology();
        List<RenderedChannel> all = new ArrayList<>();
        for (Channel c : plan.channels()) {
            String number = " " + (all.size() + 1) + ", " + Text.gbps(c.gbps()) + " GB/s";
            all.add(
                    switch (c) {
                        case Channel.Ring ring ->
                                new RenderedChannel(
                                        "ring" + number, chain(t, ring.hops()), c.hops(), false);
                        case Channel.Tree tree ->
                                new RenderedChannel(
                                        "tree" + number, edges(t, tree.hops()), c.hops(), false);
                        case Channel.Exchange exchange ->
                                new RenderedChannel(
                                        "direct exchange" + number + " per pair",
                                        "every pair at once, "
                                                + Svg.count(exchange.hops().size(), "hop"),
                                        c.hops(),
                                        true);
                    });
        }
        return all;
    }

    /** What the rails of a cluster do inside a machine. */
    static List<RenderedChannel> of(ClusterPlan plan) {
        Topology t = plan.cluster().machine();
        List<RenderedChannel> all = new ArrayList<>();
        for (ClusterPlan.Rail r : plan.channels()) {
            String title =
                    r.shape().name().toLowerCase(Locale.ROOT).replace('_', ' ')
                            + " over machines "
                            + (all.size() + 1)
                            + ", "
                            + Text.gbps(r.gbps())
                            + " GB/s";
            String inside =
                    r.hops().isEmpty() ? t.gpus().get(r.entry()).name() : chain(t, r.hops());
            String path =
                    t.nics().get(r.nicIn()).name()
                            + " → "
                            + inside
                            + " → "
                            + t.nics().get(r.nicOut()).name();
            all.add(new RenderedChannel(title, path, r.hops(), false));
        }
        return all;
    }

    private static String chain(Topology t, List<Hop> hops) {
        if (hops.isEmpty()) {
            return Svg.count(0, "hop");
        }
        StringBuilder b = new StringBuilder(name(t, hops.getFirst().from()));
        for (Hop hop : hops) {
            b.append(" → ").append(name(t, hop.to()));
        }
        return b.toString();
    }

    private static String edges(Topology t, List<Hop> hops) {
        StringBuilder b = new StringBuilder();
        int parent = -1;
        for (Hop hop : hops) {
            if (hop.from() == parent) {
                b.append(", ");
            } else {
                b.append(b.isEmpty() ? "" : "; ").append(name(t, hop.from())).append(" → ");
            }
            b.append(name(t, hop.to()));
            parent = hop.from();
        }
        return b.toString();
    }

    private static String name(Topology t, int gpu) {
        String name = t.gpus().get(gpu).name();
        return Text.cut(name.startsWith("GPU") ? name.substring(3) : name, NAME);
    }
}

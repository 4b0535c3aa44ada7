package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Traffic.Group;
import io.jccl.offload.memplan.Traffic.Kind;
import java.util.ArrayList;
import java.util.List;

/** The data that one GPU moves in a step. */
final class Volumes {
    private Volumes() {}

    static List<Traffic> of(Job job, Techniques t, Needs needs) {
        double parameters = needs.parameters();
        double trained = needs.trained();
        double kept = needs.kept() * needs.layers();
        Precision precision = job.precision();
        double m = job.batch().accumulation();
        double e = precision.parameter();
        double g = precision.gradient();
        ModelParallel split = t.split();
        double d = (double) MemoryPlanner.dataParallel(job, t) * split.context();
        double ring = (d - 1) / d;
        List<Traffic> list = new ArrayList<>();
        // A bucket for each layer.
        double l = needs.layers() * (double) t.pieces();
        double sums = t.stage() < 2 ? 1 : m;
        double gathers = t.stage() < 3 ? 1 : 2 * m;
        if (t.stage() == 0) {
            double bytes = 2 * ring * g * trained;
            add(list, Kind.ALL_REDUCE, "gradients", bytes, Group.DATA, l);
        } else {
            double summed = sums * g * ring * trained;
            double gathered = gathers * e * ring * (t.stage() < 3 ? trained : parameters);
            add(list, Kind.REDUCE_SCATTER, "gradients", summed, Group.DATA, sums * l);
            add(list, Kind.ALL_GATHER, "parameters", gathered, Group.DATA, gathers * l);
        }
        Model model = job.model();
        double tokens = (double) model.sequence() / split.context() * job.batch().micro();
        double sbh = tokens * model.hidden() * e;
        if (t.tensor() > 1) {
            int passes = t.recomputation() == Recomputation.FULL ? 6 : 4;
            double n = t.tensor();
            add(
                    list,
                    Kind.ALL_REDUCE,
                    "activations (tensor parallel)",
                    passes * m * needs.layers() * 2 * (n - 1) / n * sbh,
                    Group.TENSOR,
                    passes * m * needs.layers());
        }
        if (t.pipeline() > 1) {
            add(
                    list,
                    Kind.SEND,
                    "activations (pipeline)",
                    2 * m * sbh / t.tensor() * split.chunks(),
                    Group.PIPELINE,
                    2 * m * split.chunks());
        }
        boolean again = t.recomputation() == Recomputation.FULL;
        if (split.context() > 1) {
            // Keys and values circulate in the forward pass, and with their gradients in the
            // backward pass.
            double keys = tokens * model.attention().keysAndValues() / t.tensor() * e;
            int rounds = again ? 4 : 3;
            add(
                    list,
                    Kind.SEND,
                    "keys and values (context parallel)",
                    rounds * m * needs.layers() * (split.context() - 1) * keys,
                    Group.CONTEXT,
                    rounds * m * needs.layers() * (split.context() - 1));
        }
        Experts experts = model.experts();
        if (split.expert() > 1 && experts != null) {
            // To the experts, narrowed as their products' inputs are, and back in full; forward and
            // backward (arXiv 2412.19437, section 3.3.3).
            double share = (split.expert() - 1.0) / split.expert();
            double sparse = (double) model.sparse() / model.layers() * needs.layers();
            double both = (e + precision.operand()) / e;
            add(
                    list,
                    Kind.ALL_TO_ALL,
                    "tokens (expert parallel)",
                    (again ? 3 : 2)
                            * both
                            * m
                            * sparse
                            * share
                            * experts.active()
                            * sbh
                            / t.tensor(),
                    Group.EXPERT,
                    (again ? 6 : 4) * m * sparse);
        }
        double state = job.system().state(precision, job.optimizer());
        boolean offloaded = t.optimizer() != Tier.DEVICE;
        if (t.parameters() != Tier.DEVICE) {
            add(list, Kind.TO_DEVICE, "parameters", 2 * m * e * needs.held3());
            if (!offloaded) {
                add(list, Kind.TO_HOST, "parameters", e * Math.min(needs.held1(), needs.held3()));
            }
        } else if (offloaded) {
            add(list, Kind.TO_DEVICE, "parameters", e * needs.held1());
        }
        if (t.gradients() != Tier.DEVICE) {
            // Gradients on the host are summed there: every micro-batch transfers its own.
            add(list, Kind.TO_HOST, "gradients", m * g * needs.held2());
        } else if (offloaded) {
            add(list, Kind.TO_HOST, "gradients", g * needs.held1());
        }
        if (t.activations() != Tier.DEVICE) {
            add(list, Kind.TO_HOST, "activations", m * kept);
            add(list, Kind.TO_DEVICE, "activations", m * kept);
        }
        if (t.parameters() == Tier.NVME) {
            add(list, Kind.NVME_READ, "parameters", 2 * m * e * needs.held3());
            add(list, Kind.NVME_WRITE, "parameters", e * Math.min(needs.held1(), needs.held3()));
        }
        if (t.gradients() == Tier.NVME) {
            add(list, Kind.NVME_WRITE, "gradients", m * g * needs.held2());
            add(list, Kind.NVME_READ, "gradients", m * g * needs.held2());
        }
        if (t.optimizer() == Tier.NVME) {
            double held = job.system().heldGradient(precision);
            add(list, Kind.NVME_READ, "optimizer state", (state + held) * needs.held1());
            add(list, Kind.NVME_WRITE, "optimizer state", (state + held) * needs.held1());
        }
        if (t.activations() == Tier.NVME) {
            add(list, Kind.NVME_WRITE, "activations", m * kept);
            add(list, Kind.NVME_READ, "activations", m * kept);
        }
        return List.copyOf(list);
    }

    private static void add(List<Traffic> list, Kind kind, String what, double bytes) {
        add(list, kind, what, bytes, Group.MACHINE, 1);
    }

    private static void add(
            List<Traffic> list, Kind kind, String what, double bytes, Group group, double calls) {
        if (bytes > 0) {
            long whole = (long) Math.max(1, Math.ceil(calls));
            list.add(new Traffic(kind, what, (long) Math.ceil(bytes), group, whole));
        }
    }
}

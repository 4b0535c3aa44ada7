package io.jccl.offload.memplan;

import io.jccl.offload.Tier;

/**
 * What a job needs on each tier.
 *
 * @param device each GPU
 * @param host each machine's memory
 * @param nvme each machine's drives
 * @param parameters parameters of the fullest rank
 * @param layers its layers
 * @param kept bytes of activations of one layer and micro-batch
 */
record Needs(Usage device, Usage host, Usage nvme, double parameters, int layers, double kept) {
    boolean fit() {
        return device.fits() && host.fits() && nvme.fits();
    }

    /** The needs of a job with some techniques. */
    static Needs of(Job job, Techniques t) {
        Model model = job.model();
        Machine machine = job.machine();
        Overheads over = job.overheads();
        Precision precision = job.precision();

        int ways = t.tensor() * t.pipeline();
        int d = machine.ranks() / ways;
        double s = model.sequence();
        double b = job.batch().micro();
        double m = job.batch().accumulation();
        double h = model.hidden();
        double v = model.vocabulary();
        double e = precision.parameter();

        // Parameters: of the fullest rank, and of all ranks that hold one copy of the model.
        int layers = (model.layers() + t.pipeline() - 1) / t.pipeline();
        boolean piped = t.pipeline() > 1;
        double ends = piped ? (v + s) * h : model.embeddings();
        double fullest = (model.layerParameters() * layers + ends) / t.tensor();
        double all = model.parameters() + (piped && model.tied() ? v * h : 0);
        double mean = all / ways;

        double byStage1 = t.stage() >= 1 ? 1.0 / d : 1;
        double byStage2 = t.stage() >= 2 ? 1.0 / d : 1;
        double byStage3 = t.stage() >= 3 ? 1.0 / d : 1;
        boolean gathered = byStage3 < 1 || t.parameters() != Tier.DEVICE;
        boolean scattered = byStage2 < 1 || t.gradients() != Tier.DEVICE;
        double unit = Math.max(model.layerParameters(), v * h) / t.tensor() / t.pieces();

        int stateBytes = job.optimizer().bytes(precision);
        int heldGradient = t.optimizer() == Tier.DEVICE ? 0 : precision.offloadedGradient();

        // Activations of one layer and micro-batch: kept, and alive while it is computed again.
        double attention = (2 * e + 1) * model.heads() * s * s * b / t.tensor();
        double linear = s * b * h * (e * (8 + 2 * model.ffn()) + 2) / t.tensor();
        double input = s * b * h * e / t.tensor();
        double kept =
                switch (t.recomputation()) {
                    case NONE -> linear + attention;
                    case SELECTIVE -> linear;
                    case FULL -> input;
                };
        double again =
                switch (t.recomputation()) {
                    case NONE -> 0;
                    case SELECTIVE -> attention;
                    case FULL -> linear + attention;
                };
        double inFlight = Math.min(t.pipeline(), m);
        double allKept = kept * layers * inFlight;
        // The last norm, the output matrix's input, its logits in float32; the first dropout's
        // mask.
        double head = piped ? 0 : s * b * (2 * e * h + 4 * v) / t.tensor();
        double mask = s * b * h * inFlight / t.tensor();
        double keptHere = t.activations() == Tier.DEVICE ? allKept : Math.min(allKept, 2 * kept);

        // Gradients: of one layer's activations, of the logits.
        double backward =
                s * b * h * e * (1 + model.ffn()) / t.tensor()
                        + (piped ? 0 : s * b * v * e / t.tensor());

        double fetched = gathered ? Math.min(fullest, (1 + over.prefetch()) * unit) * e : 0;
        double leaving = scattered ? Math.min(fullest, 2 * unit) * precision.gradient() : 0;
        double nccl = machine.ranks() > 1 ? Overheads.NCCL_BUFFERS : 0;

        Usage device =
                new Usage(
                        on(t.parameters(), Tier.DEVICE, e * fullest * byStage3),
                        on(t.gradients(), Tier.DEVICE, precision.gradient() * fullest * byStage2),
                        on(t.optimizer(), Tier.DEVICE, stateBytes * fullest * byStage1),
                        bytes(keptHere + head + mask),
                        bytes(again + backward + Overheads.WORKSPACE),
                        bytes(fetched + leaving + nccl),
                        bytes(over.runtime() + over.deviceWaste() * machine.device()),
                        machine.device());

        double share = mean * machine.gpus();
        double parameters = e * share * byStage3;
        double gradients = precision.gradient() * share * byStage2;
        double held = heldGradient * share * byStage1;
        double optimizer = stateBytes * share * byStage1 + held;
        double activations = allKept * machine.gpus();

        // What passes through host memory on its way between a device and another tier.
        double staging = 0;
        if (t.optimizer() != Tier.DEVICE && t.parameters() == Tier.DEVICE) {
            staging += Math.min(mean * byStage1, 2 * unit) * e;
        }
        if (t.optimizer() != Tier.DEVICE && t.gradients() == Tier.DEVICE) {
            staging += Math.min(mean * byStage1, 2 * unit) * precision.gradient();
        }
        if (t.parameters() == Tier.NVME) {
            staging += Math.min(mean * byStage3, Overheads.NVME_SLOTS * Overheads.NVME_SLOT) * e;
        }
        if (t.gradients() == Tier.NVME) {
            staging +=
                    Math.min(mean * byStage2, Overheads.NVME_SLOTS * Overheads.NVME_SLOT)
                            * precision.gradient();
        }
        if (t.optimizer() == Tier.NVME) {
            staging +=
                    Math.min(mean * byStage1, Overheads.NVME_STATE_SLOTS * Overheads.NVME_SLOT)
                            * (stateBytes + heldGradient);
        }
        if (t.activations() == Tier.NVME) {
            staging += Math.min(allKept, 2 * kept);
        }
        Usage host =
                new Usage(
                        on(t.parameters(), Tier.PINNED, parameters),
                        on(t.gradients(), Tier.PINNED, gradients),
                        on(t.optimizer(), Tier.PINNED, optimizer),
                        on(t.activations(), Tier.PINNED, activations),
                        0,
                        bytes(staging * machine.gpus()),
                        bytes(over.hostReserve() + over.hostWaste() * machine.host()),
                        machine.host());
        int copies = over.nvmeCopies();
        Usage nvme =
                new Usage(
                        on(t.parameters(), Tier.NVME, parameters * copies),
                        on(t.gradients(), Tier.NVME, gradients),
                        on(t.optimizer(), Tier.NVME, (optimizer - held) * copies + held),
                        on(t.activations(), Tier.NVME, activations),
                        0,
                        0,
                        bytes(over.nvmeWaste() * machine.nvme()),
                        machine.nvme());
        return new Needs(device, host, nvme, fullest, layers, kept);
    }

    private static long on(Tier where, Tier tier, double bytes) {
        return where == tier ? bytes(bytes) : 0;
    }

    /** Whole bytes; what exceeds a long stays the largest one. */
    static long bytes(double value) {
        return value >= 1L << 60 ? 1L << 60 : (long) Math.ceil(value);
    }
}

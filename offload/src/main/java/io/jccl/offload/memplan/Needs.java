package io.jccl.offload.memplan;

import io.jccl.offload.Tier;

/**
 * What a job needs on each tier.
 *
 * @param device each GPU
 * @param host each machine's memory
 * @param nvme each machine's drives
 * @param parameters parameters of the fullest rank
 * @param trained those of them that are trained
 * @param layers its layers
 * @param kept bytes of activations of one layer and micro-batch
 * @param held1 parameters whose state a rank holds
 * @param held2 parameters whose gradients a rank holds
 * @param held3 parameters that a rank holds between layers
 */
record Needs(
        Usage device,
        Usage host,
        Usage nvme,
        double parameters,
        double trained,
        int layers,
        double kept,
        double held1,
        double held2,
        double held3) {
    boolean fit() {
        return device.fits() && host.fits() && nvme.fits();
    }

    /** The needs of a job with some techniques. */
    static Needs of(Job job, Techniques t) {
        return of(job, t, Math.ceilDiv(job.model().layers(), t.pipeline()));
    }

    /**
     * What is needed at least: as if a stage's share of the layers were the same for all, whether
     * or not that is a whole number. Unlike what is needed, it does not fall with another layer.
     */
    static Needs least(Job job, Techniques t) {
        return of(job, t, (double) job.model().layers() / t.pipeline());
    }

    private static Needs of(Job job, Techniques t, double layers) {
        Model model = job.model();
        Machine machine = job.machine();
        Overheads over = job.overheads();
        Precision precision = job.precision();

        TrainingSystem system = job.system();
        ModelParallel split = t.split();

        int d = MemoryPlanner.dataParallel(job, t);
        double s = (double) model.sequence() / split.context();
        double b = job.batch().micro();
        double m = job.batch().accumulation();
        double h = model.hidden();
        double v = model.vocabulary();
        double e = precision.parameter();
        int ep = model.experts() == null ? 1 : split.expert();

        // Parameters: of the fullest rank, and of all ranks that hold one copy of the model. Ranks
        // of a sample's context hold the same, and take part in sharding.
        boolean piped = t.pipeline() > 1;
        double experts = model.routed() / model.layers() * layers / t.tensor();
        double ends = piped ? model.first() : model.embeddings();
        double fullest = (model.layerParameters() * layers + ends) / t.tensor() - experts;
        double copies = piped && model.tied() ? v * h : 0;
        double mean = (model.parameters() - model.routed() + copies) / (t.tensor() * t.pipeline());
        double meanExperts = model.routed() / (t.tensor() * t.pipeline());
        int shards = d * split.context();

        boolean gathered = (t.stage() >= 3 && shards > 1) || t.parameters() != Tier.DEVICE;
        boolean scattered = (t.stage() >= 2 && shards > 1) || t.gradients() != Tier.DEVICE;
        double unit = Math.max(model.largestLayer(ep), v * h) / t.tensor() / t.pieces();
        // With adapters, only these are trained, in addition to the model's parameters.
        LowRank lora = job.adapters();
        double share = layers / model.layers() / t.tensor();
        double every = 1.0 / (t.tensor() * t.pipeline());
        double trained = lora.adapts() ? lora.common(model) * share : fullest;
        double trainedExperts = lora.adapts() ? lora.routed(model) * share : experts;
        double meanTrained = lora.adapts() ? lora.common(model) * every : mean;
        double meanTrainedExperts = lora.adapts() ? lora.routed(model) * every : meanExperts;
        double leaves = unit;
        if (lora.adapts()) {
            fullest += trained;
            experts += trainedExperts;
            mean += meanTrained;
            meanExperts += meanTrainedExperts;
            leaves =
                    (lora.common(model) + lora.routed(model) / ep)
                            / model.layers()
                            / t.tensor()
                            / t.pieces();
            unit += leaves;
        }
        // Each rank has a part of the experts, and shards it over the ranks with the same part.
        double held1 = held(trained, trainedExperts, t.stage() >= 1, shards, ep);
        double held2 = held(trained, trainedExperts, t.stage() >= 2, shards, ep);
        double held3 = held(fullest, experts, t.stage() >= 3, shards, ep);
        double mean1 = held(meanTrained, meanTrainedExperts, t.stage() >= 1, shards, ep);
        double mean2 = held(meanTrained, meanTrainedExperts, t.stage() >= 2, shards, ep);
        double mean3 = held(mean, meanExperts, t.stage() >= 3, shards, ep);
        double whole = held(fullest, experts, false, shards, ep);
        double wholeTrained = held(trained, trainedExperts, false, shards, ep);

        int parameterBytes = system.parameter(precision);
        int gradientBytes = system.gradient(precision);
        int stateBytes = system.state(precision, job.optimizer());
        int heldGradient = t.optimizer() == Tier.DEVICE ? 0 : system.heldGradient(precision);

        // Activations of one layer and micro-batch: kept, and alive while it is computed again.
        Activations of = Activations.of(job, t);
        double attention = of.attention();
        double linear = of.linear();
        double input = of.input();
        double kept =
                switch (t.recomputation()) {
                    case NONE -> linear + attention;
                    case SELECTIVE -> linear + of.statistics();
                    case FULL -> input;
                };
        double again =
                switch (t.recomputation()) {
                    case NONE -> 0;
                    case SELECTIVE -> attention - of.statistics();
                    case FULL -> of.largest();
                };
        double inFlight = split.inFlight(m);
        double allKept = kept * layers * inFlight;
        // The last norm, the output matrix's input, its logits in float32; the first dropout's
        // mask.
        double head = piped ? 0 : s * b * (2 * e * h + 4 * v) / t.tensor();
        double mask = model.dropout() ? s * b * h * inFlight / of.tokenWays() : 0;
        double keptHere = t.activations() == Tier.DEVICE ? allKept : Math.min(allKept, 2 * kept);

        // Gradients: of one layer's activations, of the logits.
        double backward = of.gradients() + (piped ? 0 : s * b * v * e / t.tensor());

        double fetched = gathered ? Math.min(whole, (1 + over.prefetch()) * unit) * e : 0;
        double leaving = scattered ? Math.min(wholeTrained, 2 * leaves) * precision.gradient() : 0;
        double nccl = machine.ranks() > 1 ? Overheads.NCCL_BUFFERS : 0;
        // Weights narrowed for products, created once per step.
        double weights = held(fullest - ends / t.tensor(), experts, false, shards, ep);
        double narrowed =
                system.narrowed(precision) * (gathered ? Math.min(weights, unit) : weights);

        Usage device =
                new Usage(
                        on(t.parameters(), Tier.DEVICE, parameterBytes * held3),
                        on(t.gradients(), Tier.DEVICE, gradientBytes * held2),
                        on(t.optimizer(), Tier.DEVICE, stateBytes * held1),
                        bytes(keptHere + head + mask),
                        bytes(again + backward + narrowed + Overheads.WORKSPACE),
                        bytes(fetched + leaving + nccl),
                        bytes(over.runtime() + over.deviceWaste() * machine.device()),
                        machine.device());

        double parameters = parameterBytes * mean3 * machine.gpus();
        double gradients = gradientBytes * mean2 * machine.gpus();
        double held = heldGradient * mean1 * machine.gpus();
        double optimizer = stateBytes * mean1 * machine.gpus() + held;
        double activations = allKept * machine.gpus();

        // What passes through host memory on its way between a device and another tier.
        double staging = 0;
        if (t.optimizer() != Tier.DEVICE && t.parameters() == Tier.DEVICE) {
            staging += Math.min(mean1, 2 * leaves) * e;
        }
        if (t.optimizer() != Tier.DEVICE && t.gradients() == Tier.DEVICE) {
            staging += Math.min(mean1, 2 * leaves) * precision.gradient();
        }
        if (t.parameters() == Tier.NVME) {
            staging += Math.min(mean3, Overheads.NVME_SLOTS * Overheads.NVME_SLOT) * e;
        }
        if (t.gradients() == Tier.NVME) {
            staging +=
                    Math.min(mean2, Overheads.NVME_SLOTS * Overheads.NVME_SLOT)
                            * precision.gradient();
        }
        if (t.optimizer() == Tier.NVME) {
            staging +=
                    Math.min(mean1, Overheads.NVME_STATE_SLOTS * Overheads.NVME_SLOT)
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
        int versions = over.nvmeCopies();
        Usage nvme =
                new Usage(
                        on(t.parameters(), Tier.NVME, parameters * versions),
                        on(t.gradients(), Tier.NVME, gradients),
                        on(t.optimizer(), Tier.NVME, (optimizer - held) * versions + held),
                        on(t.activations(), Tier.NVME, activations),
                        0,
                        0,
                        bytes(over.nvmeWaste() * machine.nvme()),
                        machine.nvme());
        int rounded = (int) Math.ceil(layers);
        return new Needs(
                device, host, nvme, whole, wholeTrained, rounded, kept, held1, held2, held3);
    }

    /** What a rank holds of the parameters that all ranks share, and of the experts. */
    private static double held(
            double common, double experts, boolean sharded, int shards, int expertParallel) {
        return sharded ? (common + experts) / shards : common + experts / expertParallel;
    }

    private static long on(Tier where, Tier tier, double bytes) {
        return where == tier ? bytes(bytes) : 0;
    }

    private static long bytes(double value) {
        return value >= Usage.MOST ? Usage.MOST : (long) Math.ceil(value);
    }
}

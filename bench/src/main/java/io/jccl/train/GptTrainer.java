package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.gemm.Matmul;
import io.jccl.offload.optim.LossScale;
import io.jccl.parallel.Mesh;
import io.jccl.parallel.Pipeline;
import io.jccl.parallel.PipelineOptions;
import io.jccl.parallel.PipelineReport;
import io.jccl.parallel.PipelineSchedule;
import io.jccl.parallel.ReducerOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The training of one rank. The constructor allocates all memory; steps allocate none.
 *
 * <p><b>Threads:</b> one at a time, which must be the thread that uses the communicator.
 */
public final class GptTrainer implements AutoCloseable {
    static final String PIPELINE = "pipeline";
    static final String DATA = "data";
    static final String EXPERT = "expert";
    static final String TENSOR = "tensor";

    private static final int BUCKETS = 4;
    private static final long SMALLEST_BUCKET = 64 << 10;

    // Of the loss scale, as in torch.amp.GradScaler.
    private static final double GROWTH = 2;
    private static final double BACKOFF = 0.5;
    private static final int INTERVAL = 2000;

    private final Communicator world;
    private final RunSettings settings;
    private final Techniques techniques;
    private final Owned owned;

    /** The memory of the whole model; null without limits. */
    private final @Nullable RankMemory memory;

    private final Stream stream;
    private final Mesh mesh;
    private final Part part;
    private final ParameterStore store;
    private final @Nullable ParameterStore experts;
    private final WeightFiles weights;
    private final Stage stage;

    /** Of the blocks with experts. */
    private final ExpertLoad.Meter[] meters;

    private final @Nullable Pipeline pipeline;
    private final Batches batches;
    private final Operations operations;
    private final Buffer sum;
    private final boolean counts;
    private final Evaluator evaluator;
    private int step;
    private int skipped;

    /**
     * Allocates memory. All ranks call it.
     *
     * @param world this rank's communicator; its size is that of the techniques
     * @param corpus the text, the same on all ranks
     * @param settings the same on all ranks, already checked
     * @throws JcclException if a rank failed or memory is insufficient
     */
    public GptTrainer(Communicator world, Corpus corpus, RunSettings settings) {
        this(world, corpus, settings, null);
    }

    /**
     * Allocates memory within limits. All ranks call it.
     *
     * @param world this rank's communicator, whose device is that of the memory
     * @param corpus the text, the same on all ranks
     * @param settings the same on all ranks, already checked; parameters are the ZeRO optimizer's
     * @param memory of parameters, gradients, optimizer state, activations and what is computed
     *     from them, which the caller closes; null for memory without limits
     * @throws io.jccl.offload.OffloadMemoryException if a tier has no room; everything is freed
     *     then
     * @throws JcclException if a rank failed
     */
    public GptTrainer(
            Communicator world, Corpus corpus, RunSettings settings, @Nullable RankMemory memory) {
        this.world = world;
        this.memory = memory;
        this.owned = new Owned(memory == null ? null : memory.tiers().device());
        this.settings = settings;
        this.techniques = settings.techniques();
        Device device = world.device();
        stream = device.defaultStream();
        try {
            mesh =
                    owned.add(
                            Mesh.create(
                                    world,
                                    List.of(
                                            new Mesh.Axis(PIPELINE, techniques.pipeline()),
                                            new Mesh.Axis(
                                                    DATA, techniques.data() / techniques.expert()),
                                            new Mesh.Axis(EXPERT, techniques.expert()),
                                            new Mesh.Axis(TENSOR, techniques.tensor()))));
            part = part();
            weights = new WeightFiles(settings, corpus, part);
            batches =
                    new Batches(
                            corpus,
                            settings.seed(),
                            settings.batch(),
                            settings.sequences(),
                            techniques.accumulate(),
                            replica() * techniques.accumulate() * settings.sequences(),
                            settings.shape().context(),
                            settings.evaluation(),
                            device,
                            owned);
            long rows = (long) settings.sequences() * settings.shape().context();
            DataType factors = RoundedMatmul.type(device, techniques.precision());
            operations =
                    owned.add(
                            new Operations(
                                    device,
                                    settings.threads(),
                                    factors,
                                    part.last() ? techniques.accumulate() * rows : 0));
            store = owned.add(store(mesh.group(List.of(DATA, EXPERT)), part.layers(), "", 1));
            experts =
                    settings.shape().experts() == 0
                            ? null
                            : owned.add(
                                    store(
                                            mesh.group(DATA),
                                            part.expertLayers(),
                                            "experts",
                                            1.0 / techniques.expert()));
            Matmul matmul = owned.add(Matmul.of(device, settings.threads()));
            if (factors != null) {
                matmul = owned.add(new RoundedMatmul(matmul, factors, device, owned));
            }
            Communicator stages = mesh.group(PIPELINE);
            PipelineSchedule schedule = techniques.schedule();
            int micro = techniques.accumulate();
            boolean piped = stages.size() > 1;
            stage =
                    new Stage(
                            part,
                            store,
                            experts,
                            operations,
                            new Products(
                                    matmul,
                                    operations.layers(),
                                    stream,
                                    mesh.group(TENSOR),
                                    rows,
                                    techniques.sequenceParallel(),
                                    owned),
                            mesh.group(TENSOR),
                            mesh.group(EXPERT),
                            batches,
                            new Stage.Options(
                                    settings.sequences(),
                                    micro,
                                    piped
                                            ? schedule.inFlight(stages.size(), stages.rank(), micro)
                                            : 1,
                                    techniques.recompute(),
                                    techniques.sequenceParallel()),
                            device,
                            owned);
            pipeline =
                    piped
                            ? owned.add(
                                    Pipeline.create(
                                            stages,
                                            stage,
                                            PipelineOptions.of(
                                                            micro,
                                                            messages(),
                                                            stage.activationCount())
                                                    .withSchedule(schedule)
                                                    .withOverlap(techniques.overlap())))
                            : null;
            meters = new ExpertLoad.Meter[stage.experts().size()];
            Arrays.setAll(meters, b -> new ExpertLoad.Meter(settings.shape().experts()));
            sum = owned.add(device.allocate(DataType.FLOAT64, 1));
            counts = part.last() && mesh.coordinate(TENSOR) == 0;
            evaluator =
                    new Evaluator(
                            world,
                            stages,
                            stage,
                            batches,
                            corpus,
                            settings,
                            counts,
                            counts && replica() == 0,
                            owned);
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
    }

    private Part part() {
        GptShape shape = settings.shape();
        int stages = techniques.pipeline();
        int at = mesh.coordinate(PIPELINE);
        int first = at * shape.layers() / stages;
        int local = shape.experts() / techniques.expert();
        return new Part(
                shape,
                mesh.coordinate(TENSOR),
                techniques.tensor(),
                first,
                (at + 1) * shape.layers() / stages - first,
                mesh.coordinate(EXPERT) * local,
                local);
    }

    /** This rank's index among those with different samples. */
    private int replica() {
        return mesh.coordinate(DATA) * techniques.expert() + mesh.coordinate(EXPERT);
    }

    private ParameterStore store(
            Communicator group, List<Part.Layer> layers, String name, double factor) {
        if (!techniques.sharded()) {
            return new PlainStore(
                    group,
                    part,
                    layers,
                    settings.optimizer(),
                    settings.recipe(),
                    buckets(layers),
                    techniques.accumulate(),
                    factor,
                    operations);
        }
        RankMemory tiers =
                memory != null ? memory : owned.add(new RankMemory(world, settings, name));
        return new ShardedStore(
                group,
                part,
                layers,
                settings.optimizer(),
                settings.recipe(),
                techniques.zeroOptions(),
                techniques.scaled()
                        ? new LossScale(settings.recipe().lossScale(), GROWTH, BACKOFF, INTERVAL)
                        : LossScale.fixed(1),
                tiers.tiers(),
                factor,
                operations);
    }

    /**
     * Several buckets even for small models, so that the first are reduced while others are
     * computed.
     */
    private ReducerOptions buckets(List<Part.Layer> layers) {
        long bytes = 0;
        for (Part.Layer l : layers) {
            for (GptShape.Weight w : l.weights()) {
                bytes += part.count(w) * Float.BYTES;
            }
        }
        long most = ReducerOptions.DEFAULT.bucketBytes();
        long size = Math.clamp(bytes / BUCKETS, SMALLEST_BUCKET, most);
        long first = Math.min(size, ReducerOptions.DEFAULT.firstBucketBytes());
        return ReducerOptions.DEFAULT
                .withBuckets(first, size)
                .withCompression(techniques.compress());
    }

    /** Scaled gradients of activations would overflow float16. */
    private DataType messages() {
        return techniques.scaled() ? DataType.FLOAT32 : techniques.precision();
    }

    /** The loss scale; 1 for none. */
    double lossScale() {
        return techniques.scaled() ? store.lossFactor() : 1;
    }

    /** Steps skipped because gradients overflowed. */
    int skipped() {
        return skipped;
    }

    /** Sets the initial parameters. All ranks call it. */
    public void initialize() {
        fill(store, part.layers());
        if (experts != null) {
            fill(experts, part.expertLayers());
        }
    }

    private void fill(ParameterStore into, List<Part.Layer> layers) {
        into.initialize((layer, weight, values) -> {
            Part.Layer l = layers.get(layer);
            part.initialize(settings.seed(), l, l.weights().get(weight), values.asSegment());
        });
    }

    /**
     * Runs one step. All ranks call it.
     *
     * @return the loss before the step, the mean over the samples of all ranks, in nats per token
     * @throws JcclException if a rank failed, or the loss is not finite
     */
    public double step() {
        batches.step(step);
        if (pipeline == null) {
            for (int micro = 0; micro < techniques.accumulate(); micro++) {
                stage.forward(micro, null, null, stream);
                stage.backward(micro, null, null, stream);
            }
        } else {
            pipeline.run();
        }
        Recipe recipe = settings.recipe();
        double rate = settings.learningRate() * recipe.schedule().factor(step, settings.steps());
        double norm = recipe.clips() || techniques.scaled() ? norm() : 1;
        if (techniques.scaled() && !Double.isFinite(norm)) {
            // The norm is that of all ranks, so all of them skip this step.
            store.skip();
            if (experts != null) {
                experts.skip();
            }
            skipped++;
        } else {
            double clip = recipe.clips() ? recipe.factor(norm) : 1;
            store.step(rate, clip);
            if (experts != null) {
                experts.step(rate, clip);
            }
        }
        for (int b = 0; b < meters.length; b++) {
            meters[b].add(stage.experts().get(b).statistics());
        }
        step++;
        double mine = stage.takeLoss();
        double tokens = (double) settings.batch() * settings.shape().context();
        double loss = sumOfRanks(counts ? mine : 0) / tokens;
        if (!Double.isFinite(loss)) {
            throw new JcclException(
                    "the loss of step %s is %s, expected a finite number; lower --lr"
                            .formatted(step, loss));
        }
        return loss;
    }

    /** What this rank computes. */
    Stage stage() {
        return stage;
    }

    /** Measures and generates text between two steps. */
    Evaluator evaluator() {
        return evaluator;
    }

    /** The norm of the gradients of the whole model: weights that several ranks hold count once. */
    private double norm() {
        boolean first = mesh.coordinate(DATA) == 0;
        double dense = store.sumOfSquares();
        double mine = first && mesh.coordinate(EXPERT) == 0 ? dense : 0;
        if (experts != null) {
            double theirs = experts.sumOfSquares();
            mine += first ? theirs : 0;
        }
        return Math.sqrt(sumOfRanks(mine));
    }

    private double sumOfRanks(double mine) {
        sum.set(0, mine);
        world.allReduce(sum, ReduceOp.SUM, stream);
        return sum.get(0);
    }

    /** Names the communicators in a profile. */
    void name(Profile profile) {
        profile.name(world.history().communicator(), "loss");
        if (pipeline != null) {
            for (Communicator c : pipeline.communicators()) {
                profile.name(c.history().communicator(), PIPELINE);
            }
        }
        for (String axis : List.of(EXPERT, TENSOR)) {
            profile.name(mesh.group(axis).history().communicator(), axis);
        }
    }

    /** Nanoseconds that this rank has waited for gradients or parameters. */
    long waitedNanos() {
        return store.waitedNanos() + (experts == null ? 0 : experts.waitedNanos());
    }

    /** Nanoseconds that this rank has waited for overlapped messages. */
    long pipelineNanos() {
        return pipeline == null ? 0 : pipeline.waitedNanos();
    }

    void save(Checkpoints to) throws IOException {
        to.save(world, step, folder -> files(folder, true, false));
    }

    void load(Checkpoints from, int wanted, Consumer<String> warn) throws IOException {
        step = from.load(world, wanted, (folder, carried) -> files(folder, false, carried), warn);
    }

    /** Sets the state from files of any layout. All ranks call it. */
    void load(Path from) throws IOException {
        step = weights.load(from, store, experts);
    }

    /** Writes the state to a folder, for any layout. All ranks call it. */
    void save(Path folder) throws IOException {
        boolean first = mesh.coordinate(DATA) == 0 && mesh.coordinate(TENSOR) == 0;
        int ep = mesh.coordinate(EXPERT);
        WeightFiles.Seat seat =
                new WeightFiles.Seat(
                        mesh.group(TENSOR),
                        first && ep == 0,
                        first && experts != null,
                        mesh.coordinate(PIPELINE) * techniques.expert() + ep,
                        techniques.pipeline() * techniques.expert());
        weights.save(world, folder, step, seat, store, experts);
    }

    /** Each part of the model has a folder, shared by its replicas. */
    private void files(Path folder, boolean save, boolean carried) throws IOException {
        String at = "pp" + mesh.coordinate(PIPELINE);
        Path dense = folder.resolve(at + "-tp" + mesh.coordinate(TENSOR));
        String split = "-ep" + mesh.coordinate(EXPERT) + "-tp" + mesh.coordinate(TENSOR);
        Path own = folder.resolve(at + split + "-experts");
        if (save) {
            Files.createDirectories(dense);
            store.save(dense);
        } else {
            store.load(dense, carried);
        }
        if (experts != null && save) {
            Files.createDirectories(own);
            experts.save(own);
        } else if (experts != null) {
            experts.load(own, carried);
        }
    }

    /** The bubble of this run's last step, computed and measured, or empty. All ranks call it. */
    List<Double> bubble() {
        if (pipeline == null) {
            return List.of();
        }
        PipelineReport report = pipeline.report();
        return List.of(report.computed(), report.measured());
    }

    /** Load of the experts of this rank's blocks; empty without experts. */
    List<ExpertLoad> loads() {
        List<ExpertLoad> all = new ArrayList<>();
        for (int b = 0; b < meters.length; b++) {
            all.add(meters[b].load(part.firstBlock() + b));
        }
        return all;
    }

    /**
     * Number of steps taken.
     *
     * @return 0 or more
     */
    public int steps() {
        return step;
    }

    @Override
    public void close() {
        owned.close();
    }
}

package snippets;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.Layer;
import io.jccl.offload.LayerSchedule;
import io.jccl.offload.LayerTensor;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.ScheduleOptions;
import io.jccl.offload.Tier;
import io.jccl.offload.TierMemory;
import io.jccl.offload.Tiers;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.nvme.IoTicket;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import io.jccl.offload.nvme.Region;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.CheckedStep;
import io.jccl.offload.optim.DeviceOptimizer;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.Slice;
import io.jccl.offload.optim.StateTensor;
import io.jccl.offload.optim.Workers;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.StepTime;
import io.jccl.offload.timeplan.TimePlanner;
import io.jccl.offload.weights.Safetensors;
import io.jccl.offload.weights.SafetensorsWriter;
import io.jccl.offload.weights.WeightTensor;
import io.jccl.offload.weights.WeightType;
import io.jccl.offload.zero.ShardedLayer;
import io.jccl.offload.zero.ZeroOptimizer;
import io.jccl.offload.zero.ZeroOptions;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Examples of the Javadoc. SnippetsTest runs them. */
final class Offload {
    private Offload() {}

    static double step(Buffer gradients) {
        // @start region="optimizer"
        AdamW adamw = new AdamW(0.9, 0.95, 1e-8, 0.1); // betas, epsilon, weight decay
        try (Workers workers = Workers.of(2);
                OptimizerState state =
                        OptimizerState.allocate(adamw, Device.host(), gradients.count())) {
            CheckedStep checked = new CheckedStep(adamw, state, workers);
            LossScale scale = LossScale.dynamic();
            // The number of the step, the learning rate, and the largest norm.
            boolean taken = checked.run(gradients, null, 1, 0.01, scale.value(), 1.0);
            scale.update(taken);
            return taken ? state.parameters().get(0) : Double.NaN;
        }
        // @end
    }

    // @start region="rule"
    /** Signum: the sign of a momentum. */
    record Signum(double momentum) implements Optimizer {
        private static final List<StateTensor> TENSORS = List.of(StateTensor.float32("momentum"));

        @Override
        public String label() {
            return "signum";
        }

        @Override
        public List<StateTensor> state() {
            return TENSORS; // one list, since each step asks for it
        }

        @Override
        public void apply(Slice s) {
            float keep = (float) momentum;
            float rate = (float) s.learningRate();
            for (int i = 0; i < s.count(); i++) {
                float m = keep * s.state(0, i) + (1 - keep) * s.gradient(i);
                s.setState(0, i, m);
                s.setParameter(i, s.parameter(i) - rate * Math.signum(m));
            }
        }
    }

    // @end

    static double sums(Device device, List<Buffer> weights) {
        List<Layer> layers =
                weights.stream()
                        .map(w -> Layer.of("layer", LayerTensor.pinned("weights", w)))
                        .toList();
        // @start region="pools"
        Budgets budgets = new Budgets(Map.of(Tier.DEVICE, 1L << 20, Tier.PINNED, 16L << 20));
        try (TransferEngine engine = TransferEngine.create(device, TransferOptions.DEFAULT);
                BufferPool onDevice = BufferPool.device(device, budgets, PoolOptions.DEFAULT);
                BufferPool pinned = BufferPool.pinned(device, budgets, PoolOptions.DEFAULT)) {
            Tiers tiers = new Tiers(engine, onDevice, pinned, null); // no drive
            // @end
            double[] sum = new double[1];
            // @start region="schedule"
            try (LayerSchedule schedule =
                    LayerSchedule.create(layers, tiers, ScheduleOptions.DEFAULT)) {
                schedule.forward(
                        (layer,
                                buffers,
                                stream) -> { // the layer is on the device, the next one on its way
                            Buffer w = buffers.parameters().get(0);
                            stream.launchHostFunction(
                                    () -> sum[0] += w.get(0)); // a GPU runs kernels
                        });
                schedule.compute().synchronize(Duration.ofSeconds(30));
            }
            // @end
            return sum[0];
        }
    }

    static void copy(Device device, Buffer source, Buffer target) {
        // @start region="transfer"
        try (TransferEngine engine = TransferEngine.create(device, TransferOptions.DEFAULT)) {
            Transfer in = engine.toDevice(source, target, 0); // returns at once
            in.before(engine.compute()); // the compute stream waits, this thread does not
            // ... enqueue work on engine.compute() ...
            in.await(Duration.ofSeconds(30)); // errors surface here
        }
        // @end
    }

    static long taken(Device device, NvmeStore drive) {
        // @start region="memory"
        Budgets budgets = new Budgets(Map.of(Tier.DEVICE, 8L << 30)); // the others have no limit
        try (TierMemory memory = TierMemory.of(device, budgets, drive)) {
            Tiers tiers = memory.tiers(); // for a LayerSchedule or a ZeroOptimizer
            // @end
            tiers.pinned().allocate(DataType.FLOAT32, 1000).close();
            return budgets.peak(Tier.PINNED);
        }
    }

    static double train(Communicator comm, int steps) {
        // @start region="zero"
        List<ShardedLayer> layers =
                List.of(ShardedLayer.of("first", 1000), ShardedLayer.of("second", 500));
        ZeroOptions options =
                ZeroOptions.stage(3)
                        .withTypes(DataType.FLOAT32, DataType.FLOAT32)
                        .withTiers(Tier.PINNED, Tier.PINNED, Tier.PINNED);
        try (ZeroOptimizer zero = ZeroOptimizer.create(comm, layers, Adam.defaults(), options)) {
            zero.initialize((layer, tensor, values) -> {}); // zeros, the same on all ranks
            double loss = 0;
            for (int step = 0; step < steps; step++) {
                loss = 0;
                for (int layer = layers.size() - 1; layer >= 0; layer--) { // backward
                    Buffer weights = zero.gather(layer); // all of one layer, from every rank
                    Buffer gradients = zero.gradients(layer);
                    for (int i = 0; i < layers.get(layer).count(); i++) {
                        double difference = weights.get(i) - 1; // the loss is its square
                        loss += difference * difference;
                        gradients.set(i, gradients.get(i) + 2 * difference);
                    }
                    zero.release(layer);
                    zero.reduce(layer); // the mean over the ranks, to this rank's block
                }
                zero.step(0.05);
            }
            return loss;
        }
        // @end
    }

    static boolean fits() {
        // @start region="plan"
        Model model = Model.ofParameters(1_300_000_000L);
        Machine machine = new Machine(1, 16L << 30, 64L << 30, 0, 1); // GPUs, bytes, machines
        Plan plan = MemoryPlanner.plan(Job.of(model, machine), Techniques.PLAIN);
        boolean fits = plan.device().fits(); // false: state and activations need twice that
        // @end
        return fits;
    }

    static double predictedSeconds() {
        // @start region="time"
        Hardware eight = Hardware.named("H100x8", Hardware.Given.NONE);
        Job job =
                Job.of(
                        Model.ofParameters(1_300_000_000L),
                        new Machine(8, 80L << 30, 1L << 40, 0, 1));
        StepTime time = TimePlanner.predict(MemoryPlanner.plan(job, Techniques.PLAIN), eight, true);
        double seconds = time.seconds();
        double waiting = time.exposed(); // for other ranks' data, that compute does not hide
        // @end
        return waiting < seconds ? seconds : Double.NaN;
    }

    static double firstElement(Path file, String name) throws IOException {
        // @start region="weights"
        try (Safetensors weights = Safetensors.open(file)) {
            WeightTensor tensor = weights.tensor(name); // its type and shape
            try (Buffer values = Device.host().allocate(DataType.FLOAT32, tensor.count())) {
                weights.read(name, 0, values); // bfloat16 and float16 are widened
                return values.get(0);
            }
        }
        // @end
    }

    static void save(Path file, Buffer values) throws IOException {
        // @start region="save"
        List<WeightTensor> tensors =
                List.of(new WeightTensor("w", WeightType.BF16, List.of(values.count())));
        // Float32 values are rounded to the type of their tensor.
        SafetensorsWriter.write(file, Map.of("format", "pt"), tensors, tensor -> values);
        // @end
    }

    static boolean step(Compute compute, Buffer gradients) {
        // @start region="onDevice"
        Stream stream = compute.device().defaultStream();
        try (DeviceOptimizer state =
                DeviceOptimizer.allocate(Adam.defaults(), compute, gradients.count())) {
            // Step 1 at a learning rate of 0.01; the loss was multiplied by 1024; norm at most 1.
            state.checkedStep(gradients, null, 1, 0.01, 1024, 1, stream);
            stream.synchronize(Duration.ofSeconds(30));
            return !state.wasSkipped(); // false if a gradient was not finite
        }
        // @end
    }

    static double store(Path folder, Budgets budgets, Buffer pinned) throws IOException {
        // @start region="nvme"
        try (NvmeStore store = NvmeStore.open(folder, budgets, NvmeOptions.DEFAULT)) {
            Region momentum = store.region("momentum", DataType.FLOAT32, pinned.count());
            try (IoTicket written = store.write(momentum, 0, pinned)) { // asynchronous
                written.await(Duration.ofMinutes(1));
            }
            store.commit(1); // survives a crash from now on
            try (IoTicket read = store.read(momentum, 0, pinned)) {
                read.await(Duration.ofMinutes(1));
            }
        }
        // @end
        return pinned.get(0);
    }
}

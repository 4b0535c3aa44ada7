package io.jccl.examples;

import ai.djl.Device;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.DataType;
import ai.djl.ndarray.types.Shape;
import ai.djl.nn.Activation;
import ai.djl.nn.Parameter;
import ai.djl.nn.SequentialBlock;
import ai.djl.nn.core.Linear;
import ai.djl.pytorch.engine.PtNDArray;
import ai.djl.training.GradientCollector;
import ai.djl.training.ParameterStore;
import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** The network as a block of DJL, on its PyTorch engine: weights are PyTorch's own memory. */
final class DjlTraining implements Network {
    private final NDManager manager = NDManager.newBaseManager(Device.cpu(), "PyTorch");
    private final SequentialBlock block =
            new SequentialBlock()
                    .add(Linear.builder().setUnits(HIDDEN).build())
                    .add(Activation.tanhBlock())
                    .add(Linear.builder().setUnits(1).build());
    private final ParameterStore store = new ParameterStore(manager, false);
    private final List<NDArray> arrays = new ArrayList<>();
    private final List<Buffer> weights = new ArrayList<>();

    DjlTraining(int features, long seed) {
        block.initialize(manager, DataType.FLOAT32, new Shape(1, features));
        for (Parameter p : block.getParameters().values()) {
            NDArray array = p.getArray();
            Buffer view = view(array);
            int count = Math.toIntExact(view.count());
            view.copyFrom(Network.initial(count, seed + weights.size()));
            array.setRequiresGradient(true);
            arrays.add(array);
            weights.add(view);
        }
    }

    /**
     * Trains as a rank of a launcher.
     *
     * @param args none
     */
    public static void main(String[] args) {
        Comparison.run("DJL", seed -> new DjlTraining(Training.FEATURES, seed));
    }

    /** The array's own memory; the array has to outlive the buffer. */
    private static Buffer view(NDArray array) {
        return Buffer.wrap(
                MemorySegment.ofBuffer(((PtNDArray) array).toByteBuffer(true)),
                io.jccl.device.DataType.FLOAT32);
    }

    @Override
    public List<Buffer> weights() {
        return weights;
    }

    @Override
    public double backward(Regression examples) {
        try (NDManager step = manager.newSubManager();
                GradientCollector collector = manager.getEngine().newGradientCollector()) {
            NDArray x = step.create(examples.x(), new Shape(examples.rows(), examples.features()));
            NDArray y = step.create(examples.y(), new Shape(examples.rows(), 1));
            NDArray predicted = block.forward(store, new NDList(x), true).singletonOrThrow();
            NDArray loss = predicted.sub(y).square().mean();
            predicted.attach(step);
            loss.attach(step);
            collector.zeroGradients(); // PyTorch adds to what is there
            collector.backward(loss);
            return loss.getFloat();
        }
    }

    @Override
    public Buffer gradient(int weight) {
        try (NDArray gradient = arrays.get(weight).getGradient()) {
            return view(gradient);
        }
    }

    @Override
    public void close() {
        weights.forEach(Buffer::close);
        manager.close();
    }
}

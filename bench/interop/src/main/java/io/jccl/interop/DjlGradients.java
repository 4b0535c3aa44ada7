package io.jccl.interop;

import ai.djl.Device;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.Shape;
import ai.djl.pytorch.engine.PtNDArray;
import ai.djl.training.GradientCollector;
import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.parallel.ParameterSync;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Data-parallel training with DJL's PyTorch engine: autograd makes the gradient of each rank's
 * examples, JCCL averages it in the tensor's own memory. Run by {@code bench/interop/run}.
 */
public final class DjlGradients {
    private static final int FEATURES = 300;
    private static final int STEPS = 20;

    private DjlGradients() {}

    /**
     * Trains, and throws if ranks differ from each other or from a single process.
     *
     * @param args none
     */
    public static void main(String[] args) {
        Regression all = Regression.of(1024, FEATURES, 1);
        try (Communicator comm = Communicator.fromEnvironment();
                NDManager manager = NDManager.newBaseManager(Device.cpu(), "PyTorch")) {
            Data own = Data.of(manager, all.share(comm.rank(), comm.size()));
            Data whole = Data.of(manager, all);
            NDArray w = manager.zeros(new Shape(FEATURES, 1));
            w.setRequiresGradient(true);
            float first = 0;
            float loss = 0;
            for (int step = 0; step < STEPS; step++) {
                gradient(manager, whole, w);
                float[] expected;
                try (NDArray g = w.getGradient()) {
                    expected = g.toFloatArray();
                }

                loss = gradient(manager, own, w);
                try (NDArray g = w.getGradient();
                        Buffer b = view(g)) {
                    comm.allReduce(b, ReduceOp.AVG, comm.device().defaultStream());
                    Regression.requireNear(expected, g.toFloatArray(), "the gradient of DJL");
                    try (NDArray change = g.mul(0.1f)) {
                        w.setRequiresGradient(false);
                        w.subi(change);
                        w.setRequiresGradient(true);
                    }
                }
                first = step == 0 ? loss : first;
            }
            try (Buffer weights = view(w)) {
                ParameterSync.requireEqual(comm, List.of(new ParameterSync.Tensor("w", weights)));
            }
            if (!(loss < first / 10)) {
                throw new IllegalStateException("the loss went from " + first + " to " + loss);
            }
            System.out.println(
                    "DJL rank "
                            + comm.rank()
                            + " of "
                            + comm.size()
                            + ": loss from "
                            + first
                            + " to "
                            + loss
                            + ", gradients as in a single process");
        }
    }

    /** The array's own memory; the array has to outlive the buffer. */
    private static Buffer view(NDArray array) {
        return Buffer.wrap(
                MemorySegment.ofBuffer(((PtNDArray) array).toByteBuffer(true)), DataType.FLOAT32);
    }

    private static float gradient(NDManager manager, Data data, NDArray w) {
        try (GradientCollector collector = manager.getEngine().newGradientCollector();
                NDArray loss = data.x.matMul(w).sub(data.y).square().mean()) {
            collector.zeroGradients();
            collector.backward(loss);
            return loss.getFloat();
        }
    }

    private record Data(NDArray x, NDArray y) {
        static Data of(NDManager manager, Regression r) {
            return new Data(
                    manager.create(r.x(), new Shape(r.rows(), r.features())),
                    manager.create(r.y(), new Shape(r.rows(), 1)));
        }
    }
}

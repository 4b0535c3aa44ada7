package snippets;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.ColumnLinear;
import io.jccl.parallel.ExpertDispatch;
import io.jccl.parallel.ExpertOptions;
import io.jccl.parallel.ExpertRouter;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.LinearWeights;
import io.jccl.parallel.Mesh;
import io.jccl.parallel.ParameterServer;
import io.jccl.parallel.ParameterSync;
import io.jccl.parallel.Pipeline;
import io.jccl.parallel.PipelineOptions;
import io.jccl.parallel.PipelineStage;
import io.jccl.parallel.ReducerOptions;
import io.jccl.parallel.RouterOptions;
import io.jccl.parallel.RowLinear;
import io.jccl.parallel.ServerOptions;
import java.util.List;
import java.util.function.ObjIntConsumer;
import org.jspecify.annotations.Nullable;

/** Examples of the Javadoc. SnippetsTest runs them. */
final class Parallel {
    private Parallel() {}

    static double reduce(
            Communicator comm,
            List<GradientReducer.Parameter> parameters,
            ObjIntConsumer<Buffer> backward) {
        // @start region="reducer"
        try (GradientReducer reducer =
                GradientReducer.create(comm, parameters, ReducerOptions.DEFAULT)) {
            reducer.begin(true);
            for (int p = parameters.size() - 1; p >= 0; p--) {
                backward.accept(reducer.gradient(p), p); // writes the gradient
                reducer.ready(p); // averaged while the next one is computed
            }
            reducer.finish(); // each gradient is the mean over all ranks
            return reducer.gradient(0).get(0);
        }
        // @end
    }

    static int coordinate(Communicator world) {
        // @start region="mesh"
        List<Mesh.Axis> axes = List.of(new Mesh.Axis("data", 2), new Mesh.Axis("tensor", 2));
        try (Mesh mesh = Mesh.create(world, axes)) { // four ranks as a grid of 2 x 2
            Communicator tensor = mesh.group("tensor"); // this rank and its neighbour
            return tensor.size() * 10 + mesh.coordinate("data");
        }
        // @end
    }

    static double synchronize(Communicator comm, Buffer weights) {
        // @start region="sync"
        List<ParameterSync.Tensor> tensors = List.of(new ParameterSync.Tensor("weights", weights));
        ParameterSync.broadcast(comm, tensors, 0); // all start with the values of rank 0
        // ... train ...
        ParameterSync.requireEqual(comm, tensors); // names the first element that differs
        // @end
        return weights.get(0);
    }

    static void serve(Communicator world, Buffer parameters, Buffer gradients, Runnable backward) {
        // @start region="server"
        ServerOptions options = ServerOptions.synchronous(0.5f); // one server; learning rate
        try (ParameterServer server =
                ParameterServer.create(world, parameters, gradients, options)) {
            if (server.isServer()) {
                server.serve(); // until the workers have closed theirs
                return;
            }
            for (int step = 0; step < 2; step++) {
                backward.run(); // parameters to gradients
                server.push(); // the mean of all workers' gradients makes one update
                server.pull(); // parameters have the servers' values
            }
        }
        // @end
    }

    static void mlp(
            Communicator tensor, LinearWeights w1, LinearWeights w2, Matrix x, Matrix h, Matrix y) {
        // @start region="linear"
        long tokens = x.rows();
        long inputs = x.columns();
        long hidden = 4; // of all ranks together
        Stream stream = tensor.device().defaultStream();
        try (Matmul matmul = Matmul.of(tensor.device(), 1);
                ColumnLinear up =
                        ColumnLinear.create(
                                tensor,
                                matmul,
                                tokens,
                                inputs,
                                hidden,
                                ColumnLinear.Options.DEFAULT);
                RowLinear down =
                        RowLinear.create(
                                tensor,
                                matmul,
                                tokens,
                                hidden,
                                inputs,
                                RowLinear.Options.DEFAULT)) {
            up.pass(w1, x, h, null, null).forward(stream); // this rank's columns of h = x w1
            down.pass(w2, h, y, null, null).forward(stream); // y = h w2, the same on all ranks
            stream.synchronize();
        }
        // @end
    }

    static int batch(Communicator stages, PipelineStage stage) {
        // @start region="pipeline"
        // Four micro-batches, of which 8 numbers go from stage to stage.
        PipelineOptions options = PipelineOptions.of(4, DataType.FLOAT32, 8);
        try (Pipeline pipeline = Pipeline.create(stages, stage, options)) {
            pipeline.run(); // forward and backward of a whole batch
            return pipeline.slots(); // micro-batches whose activations the stage has to keep
        }
        // @end
    }

    // @start region="stage"
    /** A layer of one weight: y = w x. The first stage's x is 1, the loss is the last one's y. */
    static final class Scale implements PipelineStage {
        final double weight = 2;
        double gradient;
        private final double[] inputs = new double[4]; // one for each micro-batch

        @Override
        public void forward(
                int microBatch, @Nullable Buffer input, @Nullable Buffer output, Stream stream) {
            // A GPU runs kernels.
            stream.launchHostFunction(() -> {
                inputs[microBatch] = input == null ? 1 : input.get(0);
                if (output != null) {
                    output.set(0, weight * inputs[microBatch]);
                }
            });
        }

        @Override
        public void backward(
                int microBatch,
                @Nullable Buffer outputGradient,
                @Nullable Buffer inputGradient,
                Stream stream) {
            stream.launchHostFunction(() -> {
                double own = outputGradient == null ? 1 : outputGradient.get(0);
                gradient += own * inputs[microBatch];
                if (inputGradient != null) {
                    inputGradient.set(0, own * weight);
                }
            });
        }
    }

    // @end

    static double sumOfExpert(int expert, Buffer logits, Buffer tokens) {
        // @start region="router"
        ExpertRouter router = ExpertRouter.create(RouterOptions.top1(2, 2)); // experts, tokens
        router.route(logits, 2); // tokens x experts
        double sum = 0;
        int first = router.start(expert);
        for (int a = first; a < first + router.count(expert); a++) { // its assignments
            sum += router.weight(a) * tokens.get(router.token(a));
        }
        int dropped = router.droppedTokens(); // more than the experts have slots for
        // @end
        return dropped == 0 ? sum : Double.NaN;
    }

    static void experts(Communicator comm, Buffer logits, Buffer tokens, Buffer result) {
        // @start region="experts"
        int features = 2;
        RouterOptions router = RouterOptions.top1(2, 2); // experts, tokens of a rank
        try (ExpertDispatch experts =
                ExpertDispatch.create(comm, ExpertOptions.of(router, features))) {
            experts.route(logits, 2); // tokens x experts
            experts.dispatch(tokens); // tokens x features, to the ranks of their experts
            long first = experts.firstRow(0) * features;
            for (long i = first; i < first + experts.rowCount(0) * features; i++) {
                experts.outputs().set(i, 2 * experts.inputs().get(i)); // the expert of this rank
            }
            experts.combine(result); // weighted by the gates, in the order of the tokens
        }
        // @end
    }

    static void multiply(Buffer left, Buffer right, Buffer product) {
        // @start region="matmul"
        try (Matmul matmul = Matmul.of(Device.host(), 2)) { // two threads
            Matrix a = Matrix.of(left, 2, 3); // rows, columns; row after row
            Matrix b = Matrix.of(right, 3, 2);
            Matrix c = Matrix.of(product, 2, 2);
            matmul.multiply(a, b, c, Device.host().defaultStream());
        }
        // @end
    }
}

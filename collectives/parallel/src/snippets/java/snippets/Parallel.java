package snippets;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.Mesh;
import io.jccl.parallel.ReducerOptions;
import java.util.List;
import java.util.function.ObjIntConsumer;

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

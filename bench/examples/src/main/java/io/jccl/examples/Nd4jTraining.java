package io.jccl.examples;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.nd4j.autodiff.samediff.SDVariable;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;

/**
 * The network as a graph of ND4J's SameDiff, on its CPU backend: weights are the arrays' memory.
 */
final class Nd4jTraining implements Network {
    private static final List<String> NAMES = List.of("w1", "b1", "w2", "b2");

    private final SameDiff graph = SameDiff.create();
    private final List<Buffer> weights = new ArrayList<>();
    private List<INDArray> gradients = List.of();

    Nd4jTraining(int features, long seed) {
        var type = org.nd4j.linalg.api.buffer.DataType.FLOAT;
        long[][] shapes = {{features, HIDDEN}, {1, HIDDEN}, {HIDDEN, 1}, {1, 1}};
        SDVariable[] w = new SDVariable[shapes.length];
        for (int i = 0; i < shapes.length; i++) {
            float[] values = Network.initial((int) (shapes[i][0] * shapes[i][1]), seed + i);
            w[i] = graph.var(NAMES.get(i), Nd4j.createFromArray(values).reshape(shapes[i]));
        }
        SDVariable x = graph.placeHolder("x", type, -1, features);
        SDVariable y = graph.placeHolder("y", type, -1, 1);
        SDVariable units = graph.math().tanh(x.mmul(w[0]).add(w[1]));
        SDVariable error = units.mmul(w[2]).add(w[3]).sub(y);
        error.mul(error).mean("loss");
        graph.setLossVariables("loss");
        for (String name : NAMES) {
            weights.add(view(graph.getVariable(name).getArr()));
        }
    }

    /**
     * Trains as a rank of a launcher.
     *
     * @param args none
     */
    public static void main(String[] args) {
        Comparison.run("ND4J", seed -> new Nd4jTraining(Training.FEATURES, seed));
    }

    /** The array's own memory; the array has to outlive the buffer, and be no view of another. */
    private static Buffer view(INDArray array) {
        return Buffer.wrapAddress(array.data().address(), DataType.FLOAT32, array.length());
    }

    @Override
    public List<Buffer> weights() {
        return weights;
    }

    @Override
    public double backward(Regression examples) {
        Map<String, INDArray> inputs =
                Map.of(
                        "x",
                        Nd4j.createFromArray(examples.x())
                                .reshape(examples.rows(), examples.features()),
                        "y",
                        Nd4j.createFromArray(examples.y()).reshape(examples.rows(), 1));
        Map<String, INDArray> all = graph.calculateGradients(inputs, NAMES);
        // What is transposed or a part of another array is copied, in the order of its rows.
        gradients =
                NAMES.stream()
                        .map(n -> Objects.requireNonNull(all.get(n), n))
                        .map(g -> g.isView() || g.ordering() != 'c' ? g.dup('c') : g)
                        .toList();
        return graph.getVariable("loss").eval(inputs).getFloat(0);
    }

    @Override
    public Buffer gradient(int weight) {
        return view(gradients.get(weight));
    }

    @Override
    public void close() {
        weights.forEach(Buffer::close);
    }
}

package io.jccl.interop;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.parallel.ParameterSync;
import java.util.List;
import java.util.Map;
import org.nd4j.autodiff.samediff.SDVariable;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;

/**
 * Data-parallel training with ND4J's CPU backend: SameDiff makes the gradient of each rank's
 * examples, JCCL averages it in the array's own memory. Run by {@code bench/interop/run}.
 */
public final class Nd4jGradients {
    private static final int FEATURES = 300;
    private static final int STEPS = 20;

    private Nd4jGradients() {}

    /**
     * Trains, and throws if ranks differ from each other or from a single process.
     *
     * @param args none
     */
    public static void main(String[] args) {
        Regression all = Regression.of(1024, FEATURES, 1);
        try (Communicator comm = Communicator.fromEnvironment()) {
            Regression own = all.share(comm.rank(), comm.size());
            INDArray w = Nd4j.zeros(org.nd4j.linalg.api.buffer.DataType.FLOAT, FEATURES, 1);
            SameDiff graph = graph(w);
            float first = 0;
            float loss = 0;
            for (int step = 0; step < STEPS; step++) {
                float[] expected = gradient(graph, all).data().asFloat();
                INDArray g = gradient(graph, own);
                loss = graph.getVariable("loss").eval(inputs(own)).getFloat(0);
                try (Buffer b = view(g)) {
                    comm.allReduce(b, ReduceOp.AVG, comm.device().defaultStream());
                }
                Regression.requireNear(expected, g.data().asFloat(), "the gradient of ND4J");
                INDArray weights = graph.getVariable("w").getArr();
                weights.subi(g.muli(0.1f));
                first = step == 0 ? loss : first;
            }
            INDArray weights = graph.getVariable("w").getArr();
            try (Buffer b = view(weights)) {
                ParameterSync.requireEqual(comm, List.of(new ParameterSync.Tensor("w", b)));
            }
            if (!(loss < first / 10)) {
                throw new IllegalStateException("the loss went from " + first + " to " + loss);
            }
            System.out.println(
                    "ND4J rank "
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

    /** The array's own memory; the array has to outlive the buffer, and be no view of another. */
    private static Buffer view(INDArray array) {
        return Buffer.wrapAddress(array.data().address(), DataType.FLOAT32, array.length());
    }

    private static SameDiff graph(INDArray w) {
        SameDiff graph = SameDiff.create();
        var type = org.nd4j.linalg.api.buffer.DataType.FLOAT;
        SDVariable x = graph.placeHolder("x", type, -1, FEATURES);
        SDVariable y = graph.placeHolder("y", type, -1, 1);
        SDVariable error = x.mmul(graph.var("w", w)).sub(y);
        error.mul(error).mean("loss");
        graph.setLossVariables("loss");
        return graph;
    }

    private static Map<String, INDArray> inputs(Regression r) {
        return Map.of(
                "x", Nd4j.createFromArray(r.x()).reshape(r.rows(), r.features()),
                "y", Nd4j.createFromArray(r.y()).reshape(r.rows(), 1));
    }

    private static INDArray gradient(SameDiff graph, Regression r) {
        INDArray g = graph.calculateGradients(inputs(r), "w").get("w");
        return g.isView() ? g.dup() : g;
    }
}

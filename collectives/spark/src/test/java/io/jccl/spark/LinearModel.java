package io.jccl.spark;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.spark.BarrierTaskContext;

/** Least squares by gradient descent on all examples; example i is made from its number. */
final class LinearModel {
    private static final int FEATURES = 16;
    private static final int STEPS = 60;
    private static final double RATE = 1.0;
    private static final double NOISE = 0.01;

    static final double[] TRUTH = new Random(7).doubles(FEATURES, -1, 1).toArray();

    private LinearModel() {}

    /** Adds the gradient of each example, and then counts it in the last element. */
    private static void addGradients(List<Integer> examples, double[] weights, double[] sum) {
        for (int example : examples) {
            Random random = new Random(example);
            double[] x = random.doubles(FEATURES, -1, 1).toArray();
            double error = -NOISE * random.nextGaussian();
            for (int j = 0; j < FEATURES; j++) {
                error += (weights[j] - TRUTH[j]) * x[j];
            }
            for (int j = 0; j < FEATURES; j++) {
                sum[j] += error * x[j];
            }
            sum[FEATURES]++;
        }
    }

    private static void descend(double[] weights, double[] sum) {
        for (int j = 0; j < FEATURES; j++) {
            weights[j] -= RATE * sum[j] / sum[FEATURES];
        }
    }

    /** Trains on this task's examples together with the other tasks; returns the weights. */
    static String train(BarrierTaskContext context, List<Integer> examples) {
        Communicator comm = SparkCommunicator.join(context);
        var stream = comm.device().defaultStream();
        double[] weights = new double[FEATURES];
        double[] sum = new double[FEATURES + 1];
        try (var gradient = comm.device().allocate(DataType.FLOAT64, sum.length)) {
            for (int step = 0; step < STEPS; step++) {
                Arrays.fill(sum, 0);
                addGradients(examples, weights, sum);
                for (int j = 0; j < sum.length; j++) {
                    gradient.set(j, sum[j]);
                }
                comm.allReduce(gradient, ReduceOp.SUM, stream);
                for (int j = 0; j < sum.length; j++) {
                    sum[j] = gradient.get(j);
                }
                descend(weights, sum);
            }
        }
        return Arrays.stream(weights).mapToObj(Double::toString).collect(Collectors.joining(" "));
    }

    /** The same in one thread. */
    static double[] trainAlone(List<List<Integer>> partitions) {
        double[] weights = new double[FEATURES];
        for (int step = 0; step < STEPS; step++) {
            double[] total = new double[FEATURES + 1];
            for (List<Integer> examples : partitions) {
                double[] sum = new double[FEATURES + 1];
                addGradients(examples, weights, sum);
                for (int j = 0; j < sum.length; j++) {
                    total[j] += sum[j];
                }
            }
            descend(weights, total);
        }
        return weights;
    }
}

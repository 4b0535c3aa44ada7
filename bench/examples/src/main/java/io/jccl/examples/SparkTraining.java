package io.jccl.examples;

import static org.apache.spark.sql.functions.avg;
import static org.apache.spark.sql.functions.callUDF;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.pow;

import io.jccl.Communicator;
import io.jccl.spark.SparkCommunicator;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The network of plain Java on a DataFrame of Spark: a barrier stage of two tasks trains it, each
 * on its partition of the rows, and a function of SQL predicts with it.
 */
final class SparkTraining {
    private static final int EXAMPLES = 512;
    private static final int TASKS = 2;
    private static final StructType SCHEMA =
            new StructType()
                    .add("features", DataTypes.createArrayType(DataTypes.FloatType))
                    .add("label", DataTypes.FloatType);

    private SparkTraining() {}

    /**
     * Trains in a local Spark, or on the cluster that spark-submit names.
     *
     * @param args none
     * @throws IOException if Spark does not end
     */
    public static void main(String[] args) throws IOException {
        SparkSession.Builder builder = SparkSession.builder().appName("train");
        if (System.getProperty("spark.master") == null) {
            builder.master("local[" + TASKS + "]").config("spark.ui.enabled", false);
        }
        try (SparkSession spark = builder.getOrCreate()) {
            Dataset<Row> rows = rows(spark, Regression.of(EXAMPLES, Training.FEATURES, 1));
            List<float[][]> trained =
                    SparkCommunicator.mapPartitions(
                                    rows.coalesce(TASKS).javaRDD(),
                                    (context, mine) -> train(SparkCommunicator.join(context), mine))
                            .collect();
            float[][] weights = trained.getFirst();
            UDF1<Seq<Float>, Float> predict = features -> predict(weights, features);
            spark.udf().register("predict", predict, DataTypes.FloatType);
            Dataset<Row> predicted =
                    rows.withColumn("prediction", callUDF("predict", col("features")));
            double error = error(predicted, "prediction");
            double none = predicted.agg(avg(pow(col("label"), 2))).head().getDouble(0);
            if (trained.size() != TASKS || !(error < none / 2)) {
                throw new IllegalStateException(
                        trained.size() + " tasks, " + error + " of " + none);
            }
            System.out.printf(
                    Locale.ROOT,
                    "Spark, %d tasks: mean squared error %.4f, without a model %.4f%n",
                    TASKS,
                    error,
                    none);
        }
    }

    private static double error(Dataset<Row> rows, String prediction) {
        return rows.agg(avg(pow(col(prediction).minus(col("label")), 2))).head().getDouble(0);
    }

    private static Dataset<Row> rows(SparkSession spark, Regression all) {
        List<Row> rows = new ArrayList<>();
        for (int i = 0; i < all.rows(); i++) {
            List<Float> features = new ArrayList<>();
            for (int f = 0; f < all.features(); f++) {
                features.add(all.x()[i * all.features() + f]);
            }
            rows.add(RowFactory.create(features, all.y()[i]));
        }
        return spark.createDataFrame(rows, SCHEMA).repartition(TASKS);
    }

    /** One task: its rows become arrays, and all tasks train one network. */
    private static Iterator<float[][]> train(Communicator comm, Iterator<Row> mine) {
        List<Row> rows = new ArrayList<>();
        mine.forEachRemaining(rows::add);
        int width = Training.FEATURES;
        float[] x = new float[rows.size() * width];
        float[] y = new float[rows.size()];
        for (int i = 0; i < y.length; i++) {
            List<Float> features = rows.get(i).getList(0);
            for (int f = 0; f < width; f++) {
                x[i * width + f] = features.get(f);
            }
            y[i] = rows.get(i).getFloat(1);
        }
        try (PlainTraining network = new PlainTraining(width, 1)) {
            Training.reduced(comm, network, new Regression(y.length, width, x, y));
            return Collections.singleton(network.values()).iterator();
        }
    }

    private static float predict(float[][] weights, Seq<Float> features) {
        List<Float> values = CollectionConverters.asJava(features);
        float[] x = new float[values.size()];
        for (int f = 0; f < x.length; f++) {
            x[f] = values.get(f);
        }
        return PlainTraining.predict(weights, x, 0, x.length, new float[Network.HIDDEN]);
    }
}

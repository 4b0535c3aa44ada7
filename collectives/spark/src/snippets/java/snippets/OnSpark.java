package snippets;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.spark.SparkCommunicator;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;

/** Examples of the Javadoc. LayoutTest runs them. */
public final class OnSpark {
    private OnSpark() {}

    /** The mean of 1 and 2, from each of two tasks. */
    public static List<Double> average(JavaSparkContext spark) {
        // @start region="average"
        JavaRDD<Double> rows = spark.parallelize(List.of(1.0, 2.0), 2); // one partition per rank
        JavaRDD<Double> means =
                SparkCommunicator.mapPartitions(
                        rows,
                        (context, mine) -> {
                            Communicator comm = SparkCommunicator.join(context); // ends with it
                            try (Buffer b = comm.device().allocate(DataType.FLOAT64, 1)) {
                                b.set(0, mine.next());
                                comm.allReduce(b, ReduceOp.AVG, comm.device().defaultStream());
                                return List.of(b.get(0)).iterator(); // 1.5 on both
                            }
                        });
        // @end
        return means.collect();
    }
}

package io.jccl.spark;

import io.jccl.LocalJob;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskEndReason;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.jspecify.annotations.Nullable;

/** A Spark application of this JVM: the driver here, executors here or in JVMs of their own. */
final class Cluster implements AutoCloseable {
    static final String CANNOT_START = "io.jccl.spark.Cluster#cannotStart";

    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final Duration PAUSE = Duration.ofMillis(20);

    final JavaSparkContext spark;

    /** How each task ended, in the order in which the driver learnt it. */
    private final List<TaskEnd> ends = new CopyOnWriteArrayList<>();

    /** The end of one attempt at a task. */
    record TaskEnd(int stageAttempt, int partition, TaskEndReason reason) {}

    /** What a task does, and the one thing that it returns. */
    interface Body extends Serializable {
        String run(BarrierTaskContext context, List<Integer> rows) throws Exception;
    }

    /**
     * Whether this is a JDK that JCCL supports and Spark does not yet: Spark 4.1 does not start on
     * JDK 27, which has no {@code jdk.internal.ref.Cleaner} any more.
     */
    static boolean cannotStart() {
        if (Runtime.version().feature() <= 25) {
            return false;
        }
        try {
            Class.forName("org.apache.spark.unsafe.Platform");
            return false;
        } catch (ClassNotFoundException | LinkageError e) {
            return true;
        }
    }

    Cluster(String master) {
        this(master, Map.of());
    }

    Cluster(String master, Map<String, String> settings) {
        SparkConf conf =
                new SparkConf()
                        .setMaster(master)
                        .setAppName("jccl-spark tests")
                        .set("spark.driver.host", "127.0.0.1")
                        .set("spark.driver.bindAddress", "127.0.0.1")
                        .set("spark.ui.enabled", "false")
                        // An executor lives for seconds, most of which would be C2's and G1's.
                        .set(
                                "spark.executor.extraJavaOptions",
                                String.join(" ", Workers.SHORT_LIVED))
                        .set(
                                "spark.executor.extraClassPath",
                                System.getProperty("java.class.path"));
        settings.forEach(conf::set);
        makeSparkHome();
        spark = new JavaSparkContext(conf);
        spark.sc()
                .addSparkListener(
                        new SparkListener() {
                            @Override
                            public void onTaskEnd(SparkListenerTaskEnd end) {
                                int partition = end.taskInfo().partitionId();
                                ends.add(
                                        new TaskEnd(end.stageAttemptId(), partition, end.reason()));
                            }
                        });
    }

    /** Spark starts executors by what is in SPARK_HOME; here their class path says it all. */
    private static void makeSparkHome() {
        String home = Objects.requireNonNull(System.getenv("SPARK_HOME"), "SPARK_HOME");
        try {
            Files.createDirectories(Path.of(home, "jars"));
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /** Rows 0 to count - 1 in so many partitions. */
    JavaRDD<Integer> rows(int count, int partitions) {
        return spark.parallelize(IntStream.range(0, count).boxed().toList(), partitions);
    }

    /** Runs one barrier stage, whose failure fails the job; results by rank. */
    List<String> run(int tasks, Body body) {
        return run(rows(tasks, tasks), body);
    }

    List<String> run(JavaRDD<Integer> rows, Body body) {
        return stage(rows, body).collect();
    }

    /**
     * Runs one barrier stage that writes a shuffle: only such a stage does Spark try again when a
     * task fails.
     */
    List<String> runWithRetries(int tasks, Body body) {
        List<String> results =
                new ArrayList<>(stage(rows(tasks, tasks), body).repartition(1).collect());
        results.sort(null);
        return results;
    }

    private static JavaRDD<String> stage(JavaRDD<Integer> rows, Body body) {
        return SparkCommunicator.mapPartitions(
                rows,
                (context, partition) -> List.of(body.run(context, list(partition))).iterator());
    }

    private static List<Integer> list(Iterator<Integer> rows) {
        List<Integer> list = new ArrayList<>();
        rows.forEachRemaining(list::add);
        return list;
    }

    /** How the tasks of the runs since the last call ended; waits until so many are known. */
    List<TaskEnd> ends(int count) {
        await(() -> ends.size() >= count, "the driver to learn how " + count + " tasks ended");
        List<TaskEnd> all = List.copyOf(ends);
        ends.clear();
        return all;
    }

    /** Threads of JCCL's that still run in the executors, after they had some time to end. */
    List<String> threads(int tasks) {
        return threads(tasks, "jccl-");
    }

    List<String> threads(int tasks, String prefix) {
        return run(
                tasks,
                (context, rows) -> {
                    long deadline = System.nanoTime() + PATIENCE.toNanos();
                    List<String> left;
                    do {
                        Thread.sleep(PAUSE);
                        left =
                                Thread.getAllStackTraces().keySet().stream()
                                        .map(Thread::getName)
                                        .filter(name -> name.startsWith(prefix))
                                        .toList();
                    } while (!left.isEmpty() && System.nanoTime() < deadline);
                    return left.toString();
                });
    }

    /** What runs on Spark left in shared memory, after executors had some time to clean up. */
    static List<String> leftovers() {
        List<String> left = new ArrayList<>();
        await(
                () -> {
                    left.clear();
                    try (DirectoryStream<Path> folders =
                            Files.newDirectoryStream(LocalJob.sharedFolder(), "jccl-spark-*")) {
                        folders.forEach(folder -> left.add(folder.toString()));
                    } catch (IOException e) {
                        throw new AssertionError(e);
                    }
                    return left.isEmpty();
                },
                null);
        return left;
    }

    /** A condition that comes true in time. */
    interface Condition {
        boolean holds();
    }

    /** Waits; fails if a name is given and the time is over. */
    static void await(Condition condition, @Nullable String what) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                if (what != null) {
                    throw new AssertionError("waited " + PATIENCE + " for " + what);
                }
                return;
            }
            try {
                Thread.sleep(PAUSE);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    /** Numbers in a text that tasks returned. */
    static double[] doubles(String text) {
        return Arrays.stream(text.split(" ")).mapToDouble(Double::parseDouble).toArray();
    }

    @Override
    public void close() {
        spark.close();
    }
}

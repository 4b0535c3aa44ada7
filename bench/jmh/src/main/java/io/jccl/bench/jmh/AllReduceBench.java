package io.jccl.bench.jmh;

import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** Time of a float32 sum over two ranks by size. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(
        value = 1,
        jvmArgsAppend = {
            "--add-modules=jdk.incubator.vector",
            "--enable-native-access=ALL-UNNAMED"
        })
public class AllReduceBench {
    /** Bytes of each buffer. */
    @Param({
        "8",
        "64",
        "1024",
        "8192",
        "65536",
        "262144",
        "1048576",
        "4194304",
        "16777216",
        "67108864"
    })
    public long bytes;

    /** Out of place, or in place. */
    @Param({"ALL_REDUCE", "ALL_REDUCE_IN_PLACE"})
    public Operation operation = Operation.ALL_REDUCE;

    @SuppressWarnings("NullAway.Init") // set by start()
    private Peer peer;

    /** Starts the other rank. */
    @Setup
    public void start() {
        peer = new Peer(operation, bytes);
    }

    /** One operation of this rank. */
    @Benchmark
    public void allReduce() {
        peer.run();
    }

    /**
     * Ends the other rank.
     *
     * @throws InterruptedException if interrupted while waiting
     */
    @TearDown
    public void stop() throws InterruptedException {
        peer.stop();
    }
}

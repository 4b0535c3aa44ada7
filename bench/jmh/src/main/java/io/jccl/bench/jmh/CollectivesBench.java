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

/**
 * Time of every operation over two ranks, for small and medium sizes. Where one rank only sends,
 * such as the root of a broadcast, it is the time per operation in a sequence of them.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 3, time = 1)
@Fork(
        value = 1,
        jvmArgsAppend = {
            "--add-modules=jdk.incubator.vector",
            "--enable-native-access=ALL-UNNAMED"
        })
public class CollectivesBench {
    /** Bytes of the larger buffer: all blocks where there are blocks. */
    @Param({"8", "65536"})
    public long bytes;

    /** The measured operation; JMH sets each value in turn. */
    @Param public Operation operation = Operation.BARRIER;

    @SuppressWarnings("NullAway.Init") // set by start()
    private Peer peer;

    /** Starts the other rank. */
    @Setup
    public void start() {
        peer = new Peer(operation, bytes);
    }

    /** One operation of this rank. */
    @Benchmark
    public void run() {
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

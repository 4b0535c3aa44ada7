package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.concurrent.TimeUnit;
import jdk.jfr.Recording;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What the flight recorder costs: the same operation of one rank on the host, which waits for
 * nobody, without the ring, with it, and with a recording of collectives under way.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@SuppressWarnings("NullAway.Init") // set by start()
public class FlightBench {
    private static final String VECTOR = "--add-modules=jdk.incubator.vector";
    private static final String NATIVE = "--enable-native-access=ALL-UNNAMED";
    private static final String NO_RING = "-Djccl.flight.capacity=0";

    /** One rank. */
    @State(Scope.Thread)
    public static class Rank {
        private Communicator comm;
        private Stream stream;
        private Buffer buffer;

        /** Makes it. */
        @Setup
        public void start() {
            comm = Communicator.local(1).getFirst();
            stream = comm.device().defaultStream();
            buffer = comm.device().allocate(DataType.FLOAT32, 2);
        }

        void run() {
            comm.allReduce(buffer, ReduceOp.SUM, stream);
        }

        /** Gives everything back. */
        @TearDown
        public void stop() {
            comm.close();
            buffer.close();
        }
    }

    /** A recording that wants collectives and nothing else, and keeps the last 16 MiB. */
    @State(Scope.Benchmark)
    public static class Recorded {
        private Recording recording;

        /** Starts it. */
        @Setup
        public void start() {
            recording = new Recording();
            recording.enable("io.jccl.Collective").withoutStackTrace();
            recording.setMaxSize(16 << 20);
            recording.start();
        }

        /** Drops it. */
        @TearDown
        public void stop() {
            recording.close();
        }
    }

    /**
     * No ring, no recording.
     *
     * @param rank the rank
     */
    @Benchmark
    @Fork(
            value = 3,
            jvmArgsAppend = {VECTOR, NATIVE, NO_RING})
    public void off(Rank rank) {
        rank.run();
    }

    /**
     * As it always is.
     *
     * @param rank the rank
     */
    @Benchmark
    @Fork(
            value = 3,
            jvmArgsAppend = {VECTOR, NATIVE})
    public void ring(Rank rank) {
        rank.run();
    }

    /**
     * With a recording.
     *
     * @param rank the rank
     * @param recorded the recording
     */
    @Benchmark
    @Fork(
            value = 3,
            jvmArgsAppend = {VECTOR, NATIVE})
    public void recording(Rank rank, Recorded recorded) {
        rank.run();
    }

    /**
     * What reading the clock costs here, for comparison.
     *
     * @return nanoseconds
     */
    @Benchmark
    @Fork(1)
    public long nanoTime() {
        return System.nanoTime();
    }
}

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
 * The cost of the flight recorder: the same operation of one rank on the host, which waits for no
 * other rank, without the ring, with it, and during a JFR recording of collectives.
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

        /** Creates the rank. */
        @Setup
        public void start() {
            comm = Communicator.local(1).getFirst();
            stream = comm.device().defaultStream();
            buffer = comm.device().allocate(DataType.FLOAT32, 2);
        }

        void run() {
            comm.allReduce(buffer, ReduceOp.SUM, stream);
        }

        /** Closes everything. */
        @TearDown
        public void stop() {
            comm.close();
            buffer.close();
        }
    }

    /** A recording of collectives only, which keeps the last 16 MiB. */
    @State(Scope.Benchmark)
    public static class Recorded {
        private Recording recording;

        /** Starts the recording. */
        @Setup
        public void start() {
            recording = new Recording();
            recording.enable("io.jccl.Collective").withoutStackTrace();
            recording.setMaxSize(16 << 20);
            recording.start();
        }

        /** Discards the recording. */
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
     * The default: the ring without a recording.
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
     * The cost of reading the clock, for comparison.
     *
     * @return nanoseconds
     */
    @Benchmark
    @Fork(1)
    public long nanoTime() {
        return System.nanoTime();
    }
}

package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.List;
import java.util.concurrent.TimeUnit;
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
 * The time that {@link Communicator#allReduce} adds to {@code ncclAllReduce}. Meant for a libnccl
 * whose collectives return at once, such as the fake with {@code JCCL_FAKE_NOOP=1}; with the real
 * one and a GPU it shows the whole cost of an enqueue on one rank.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(
        value = 3,
        jvmArgsAppend = {
            "--add-modules=jdk.incubator.vector",
            "--enable-native-access=ALL-UNNAMED"
        })
@SuppressWarnings("NullAway.Init") // set by start()
public class EnqueueBench {
    private static final NcclApi NCCL = NativeLibraries.nccl();
    private static final int COUNT = 1024;

    private Communicator comm;
    private Stream stream;
    private Buffer send;
    private Buffer recv;
    private long sendAt;
    private long recvAt;
    private long handle;

    /** Creates a communicator of one rank. */
    @Setup
    public void start() {
        comm = Communicator.local(List.of(Cuda.device(0)), CommunicatorOptions.DEFAULT).getFirst();
        stream = comm.device().defaultStream();
        send = comm.device().allocate(DataType.FLOAT32, COUNT);
        recv = comm.device().allocate(DataType.FLOAT32, COUNT);
        sendAt = send.address();
        recvAt = recv.address();
        handle = Cuda.streamHandle(stream);
    }

    /**
     * The bare call. It passes no valid communicator, so it works only with a libnccl that returns
     * at once.
     *
     * @return ncclSuccess
     */
    @Benchmark
    public int bare() {
        return NCCL.ncclAllReduce(
                sendAt, recvAt, COUNT, nccl_h.ncclFloat32(), nccl_h.ncclSum(), 0, handle);
    }

    /** Through the communicator: argument checks, ordering, and the watchdog's records. */
    @Benchmark
    public void communicator() {
        comm.allReduce(send, recv, ReduceOp.SUM, stream);
    }

    /** Closes everything. */
    @TearDown
    public void stop() {
        comm.close();
        send.close();
        recv.close();
    }
}

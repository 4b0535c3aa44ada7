package io.jccl.bench.jmh;

import com.sun.management.ThreadMXBean;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.cli.shell.Engine;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/**
 * Measures the time to enqueue an allReduce on all ranks at once, without the work of the streams:
 * a host function holds each stream while calls are timed. Rounds with {@link Communicator}
 * alternate with rounds that call NCCL directly, and with a loop in C in this process if there is a
 * {@link JniTwin}, so that all see the same machine. {@code nccl_allreduce -E} measures the same
 * from a program in C.
 */
@Command(mixinStandardHelpOptions = true)
final class EnqueueLoop implements Callable<Integer> {
    private static final int COUNT = 2;
    private static final String COMMUNICATOR = "jccl";
    private static final long PATIENCE_SECONDS = 60;

    /** Entries of the held flags for each rank, so that two ranks share no cache line. */
    private static final int STRIDE = 32;

    private static final long POLL_NANOS = 20_000;

    @Spec private @Nullable CommandSpec spec;

    @Option(
            names = "--ranks",
            description =
                    "How many, each on a device of its own; with NCCL_MULTI_RANK_GPU_ENABLE=1 they"
                            + " share what there is.")
    private int ranks = 2;

    @Option(names = "--calls", description = "Calls in one round.")
    private int calls = 50;

    @Option(names = "--rounds", description = "Rounds of each way, after as many for warm-up.")
    private int rounds = 3000;

    /** Loaded by a measurement, not by the help. */
    private static final class Native {
        static final NcclApi NCCL = NativeLibraries.nccl();
    }

    /** A way to enqueue, and the times of its rounds. */
    private record Way(String name, IntConsumer enqueue, double[] nanos) {}

    @Override
    public Integer call() {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        if (ranks < 1 || calls < 1 || rounds < 1) {
            throw new ParameterException(
                    spec.commandLine(),
                    "--ranks, --calls and --rounds are "
                            + List.of(ranks, calls, rounds)
                            + ", expected 1 or more of each");
        }
        var out = spec.commandLine().getOut();
        AtomicIntegerArray held = new AtomicIntegerArray(ranks * STRIDE);
        CyclicBarrier barrier = new CyclicBarrier(ranks);
        List<? extends Device> devices = Engine.NCCL.devices(ranks);
        try (Arena arena = Arena.ofShared()) {
            MemorySegment handles = arena.allocate(ValueLayout.JAVA_LONG, ranks);
            MemorySegment indices = arena.allocate(ValueLayout.JAVA_INT, ranks);
            for (int r = 0; r < ranks; r++) {
                indices.setAtIndex(ValueLayout.JAVA_INT, r, devices.get(r).index());
            }
            Native.NCCL.check(
                    Native.NCCL.ncclCommInitAll(handles, ranks, indices), "ncclCommInitAll", 0);
            Communicator.runLocal(
                    devices,
                    CommunicatorOptions.DEFAULT,
                    comm -> {
                        long handle = handles.getAtIndex(ValueLayout.JAVA_LONG, comm.rank());
                        String lines = measure(comm, handle, held, barrier);
                        synchronized (out) {
                            out.print(lines);
                            out.flush();
                        }
                        Native.NCCL.check(
                                Native.NCCL.ncclCommDestroy(handle), "ncclCommDestroy", 0);
                    });
        }
        return 0;
    }

    /** Lines for one rank: the way, the rank, and minimum, tenth percentile and median. */
    private String measure(
            Communicator comm, long handle, AtomicIntegerArray held, CyclicBarrier barrier) {
        try (Stream stream = comm.device().newStream();
                Buffer send = comm.device().allocate(DataType.FLOAT32, COUNT);
                Buffer recv = comm.device().allocate(DataType.FLOAT32, COUNT)) {
            long target = Cuda.streamHandle(stream);
            List<Way> ways = new ArrayList<>();
            if (System.getenv("JCCL_JNI_TWIN") != null) {
                ways.add(way("c-in-jvm", inC(handle, send.address(), recv.address(), target)));
            }
            ways.add(way("table", direct(handle, send.address(), recv.address(), target)));
            ways.add(
                    way(
                            COMMUNICATOR,
                            n -> {
                                for (int i = 0; i < n; i++) {
                                    comm.allReduce(send, recv, ReduceOp.SUM, stream);
                                }
                            }));
            ThreadMXBean memory = (ThreadMXBean) ManagementFactory.getThreadMXBean();
            long allocated = 0;
            int at = comm.rank() * STRIDE;
            Runnable hold =
                    () -> {
                        while (held.get(at) != 0) {
                            LockSupport.parkNanos(POLL_NANOS);
                        }
                    };
            // The first calls connect the ranks, which waits for streams that are held.
            ways.forEach(way -> way.enqueue().accept(1));
            stream.synchronize();
            await(barrier);
            for (int round = -rounds; round < rounds; round++) {
                for (Way way : ways) {
                    held.set(at, 1);
                    stream.launchHostFunction(hold);
                    await(barrier);
                    long before = memory.getCurrentThreadAllocatedBytes();
                    long began = System.nanoTime();
                    way.enqueue().accept(calls);
                    double nanos = (double) (System.nanoTime() - began) / calls;
                    long after = memory.getCurrentThreadAllocatedBytes();
                    held.set(at, 0);
                    stream.synchronize();
                    if (round >= 0) {
                        way.nanos()[round] = nanos;
                        allocated += way.name().equals(COMMUNICATOR) ? after - before : 0;
                    }
                }
            }
            StringBuilder lines = new StringBuilder();
            ways.forEach(way -> lines.append(line(way, comm.rank())));
            return lines
                    + String.format(
                            Locale.ROOT,
                            "bytes %d %.3f%n",
                            comm.rank(),
                            (double) allocated / rounds / calls);
        }
    }

    private Way way(String name, IntConsumer enqueue) {
        return new Way(name, enqueue, new double[rounds]);
    }

    private static IntConsumer inC(long handle, long send, long recv, long stream) {
        JniTwin.load(Native.NCCL.library().path());
        return n ->
                Native.NCCL.check(
                        JniTwin.enqueue(
                                send,
                                recv,
                                COUNT,
                                nccl_h.ncclFloat32(),
                                nccl_h.ncclSum(),
                                handle,
                                stream,
                                n),
                        "ncclAllReduce",
                        handle);
    }

    private static IntConsumer direct(long handle, long send, long recv, long stream) {
        return n -> {
            for (int i = 0; i < n; i++) {
                Native.NCCL.check(
                        Native.NCCL.ncclAllReduce(
                                send,
                                recv,
                                COUNT,
                                nccl_h.ncclFloat32(),
                                nccl_h.ncclSum(),
                                handle,
                                stream),
                        "ncclAllReduce",
                        handle);
            }
        };
    }

    private String line(Way way, int rank) {
        double[] sorted = way.nanos().clone();
        Arrays.sort(sorted);
        return String.format(
                Locale.ROOT,
                "%s %d %.1f %.1f %.1f%n",
                way.name(),
                rank,
                sorted[0],
                sorted[rounds / 10],
                sorted[rounds / 2]);
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException | BrokenBarrierException | TimeoutException e) {
            throw new IllegalStateException("another rank failed", e);
        }
    }
}

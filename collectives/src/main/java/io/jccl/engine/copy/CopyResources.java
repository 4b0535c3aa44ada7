package io.jccl.engine.copy;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.DataType;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaEvent;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.internal.Closing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The streams, events and scratch memory of a {@link CopyEngine}. */
final class CopyResources implements AutoCloseable {
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);

    /** A stream for one hop of one channel; it belongs to the sending device. */
    record LaneStream(CopyProgram.Lane lane, long stream, long done) {}

    private final CudaDevice[] devices;
    private final int n;
    private final Map<CopyProgram.Lane, LaneStream> lanes = new HashMap<>();

    /** The same, to iterate over without allocation. */
    private LaneStream[] all = new LaneStream[0];

    /** By rank: event recorded in the caller's stream. */
    private final long[] start;

    /** By rank: events recorded after copies. */
    private final long[][] events;

    private final @Nullable CudaBuffer[] scratch;

    /** Scratch memory that became too small, but may still be in use. */
    private final List<CudaBuffer> outgrown = new ArrayList<>();

    CopyResources(CudaDevice[] devices) {
        this.devices = devices;
        n = devices.length;
        start = new long[n];
        events = new long[n][0];
        scratch = new CudaBuffer[n];
        boolean done = false;
        try {
            for (int r = 0; r < n; r++) {
                start[r] = newEvent(r);
            }
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    /** Event to record in the stream of a rank before an operation. */
    long start(int rank) {
        return start[rank];
    }

    /** An event of a rank's pool. */
    long event(int rank, int index) {
        return events[rank][index];
    }

    /** Address of a rank's scratch memory, which the program must need. */
    long scratch(int rank) {
        return Objects.requireNonNull(scratch[rank]).address();
    }

    /** All lanes of all programs so far; not to be changed. */
    LaneStream[] all() {
        return all;
    }

    /** The stream of a lane that a program has needed. */
    long stream(int channel, int from, int to) {
        return Objects.requireNonNull(lanes.get(new CopyProgram.Lane(channel, from, to))).stream;
    }

    private long newEvent(int rank) {
        return CudaEvent.newHandle(devices[rank], cudart_h.cudaEventDisableTiming());
    }

    /** Creates the streams, events and memory that a program needs; the streams by lane. */
    LaneStream[] prepare(CopyProgram program) {
        CudaDevice.refuseVirtualThread();
        LaneStream[] own = new LaneStream[program.lanes.length];
        for (int i = 0; i < own.length; i++) {
            own[i] = stream(program.lanes[i]);
        }
        for (int r = 0; r < n; r++) {
            int have = events[r].length;
            if (have < program.events[r]) {
                long[] more = Arrays.copyOf(events[r], program.events[r]);
                for (int i = have; i < more.length; i++) {
                    more[i] = newEvent(r);
                    events[r] = Arrays.copyOf(more, i + 1);
                }
            }
            growScratch(r, program.scratch[r]);
        }
        return own;
    }

    private LaneStream stream(CopyProgram.Lane lane) {
        LaneStream known = lanes.get(lane);
        if (known == null) {
            CudaStream stream =
                    CudaStream.create(devices[lane.from()], cudart_h.cudaStreamNonBlocking(), true);
            boolean done = false;
            long event = 0;
            try {
                event = newEvent(lane.from());
                done = true;
            } finally {
                if (!done) {
                    CudaRuntime.api().cudaStreamDestroy(stream.handle());
                }
            }
            known = new LaneStream(lane, stream.handle(), event);
            lanes.put(lane, known);
            all = Arrays.copyOf(all, all.length + 1);
            all[all.length - 1] = known;
        }
        return known;
    }

    /** At least doubles, so that outgrown memory is never more than the memory in use. */
    private void growScratch(int rank, long bytes) {
        CudaBuffer have = scratch[rank];
        if (bytes > 0 && (have == null || have.byteSize() < bytes)) {
            long size = Math.max(bytes, have == null ? 0 : 2 * have.byteSize());
            scratch[rank] = CudaBuffer.allocate(devices[rank], DataType.INT8, size);
            if (have != null) {
                outgrown.add(have);
            }
        }
    }

    /** Waits for all copies, ten seconds at most, and frees everything. */
    @Override
    public void close() {
        CudaApi api = CudaRuntime.api();
        boolean idle = CudaStream.await(CLOSE_WAIT, this::isIdle, false, () -> {});
        api.cudaGetLastError();
        List<AutoCloseable> steps = new ArrayList<>();
        for (LaneStream lane : all) {
            // Unfinished copies continue; CUDA frees the stream after them.
            steps.add(() ->
                    CudaRuntime.check(api.cudaStreamDestroy(lane.stream), "cudaStreamDestroy"));
            steps.add(() -> destroyEvent(lane.done));
        }
        for (int r = 0; r < n; r++) {
            long first = start[r];
            steps.add(() -> destroyEvent(first));
            for (long event : events[r]) {
                steps.add(() -> destroyEvent(event));
            }
            CudaBuffer own = scratch[r];
            if (own != null) {
                outgrown.add(own);
            }
        }
        if (idle) {
            // Otherwise copies may still use the memory, and freeing it would wait for them.
            steps.addAll(outgrown);
        }
        Closing.all(steps);
    }

    private static void destroyEvent(long event) {
        if (event != 0) {
            CudaRuntime.check(CudaRuntime.api().cudaEventDestroy(event), "cudaEventDestroy");
        }
    }

    private boolean isIdle() {
        for (LaneStream lane : all) {
            if (CudaRuntime.api().cudaStreamQuery(lane.stream) == cudart_h.cudaErrorNotReady()) {
                return false;
            }
        }
        return true;
    }
}

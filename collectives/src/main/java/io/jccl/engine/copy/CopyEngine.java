package io.jccl.engine.copy;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaEvent;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import io.jccl.topology.Operation;
import io.jccl.topology.plan.Plan;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiFunction;
import org.jspecify.annotations.Nullable;

/** Runs {@link CopyProgram}s: the streams, events and scratch memory behind peer copies. */
public final class CopyEngine implements AutoCloseable {
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);

    /** Programs kept: calls of one of the last sizes make nothing new. */
    private static final int KEPT = 32;

    /** A stream for one hop of one channel; it belongs to the sending device. */
    private record LaneStream(CopyProgram.Lane lane, long stream, long done) {}

    /** A program with the streams of its lanes. */
    private record Ready(CopyProgram program, LaneStream[] lanes) {}

    private final CudaDevice[] devices;
    private final int n;
    private final List<Plan> plans;
    private final @Nullable BiFunction<Operation, Integer, Plan> planner;
    private final long chunkBytes;

    private final Map<CopyProgram.Lane, LaneStream> lanes = new HashMap<>();

    /** The same, to go through without an iterator. */
    private LaneStream[] all = new LaneStream[0];

    private final @Nullable Ready[] kept = new Ready[KEPT];
    private int nextKept;

    /** By rank: marks in the streams of the caller. */
    private final long[] start;

    /** By rank: marks behind copies. */
    private final long[][] events;

    private final @Nullable CudaBuffer[] scratch;

    /** Scratch memory that became too small, but may still be in use. */
    private final List<CudaBuffer> outgrown = new ArrayList<>();

    private final int peers;
    private boolean closed;

    // Of the call under way.
    private final long[] sendAt;
    private final long[] recvAt;
    private final CudaStream[] streams;

    /**
     * Takes devices, and makes what is needed whatever the plan.
     *
     * @param devices by rank
     * @param plans what is planned already
     * @param planner makes the plan of an operation and root that {@code plans} lacks; null if
     *     there is none
     * @param chunkBytes size of a chunk, 0 to choose it by size and hops
     */
    public CopyEngine(
            List<? extends Device> devices,
            List<Plan> plans,
            @Nullable BiFunction<Operation, Integer, Plan> planner,
            long chunkBytes) {
        n = devices.size();
        if (n == 0) {
            throw new IllegalArgumentException(
                    "there is no device, expected one CUDA device for each rank");
        }
        if (chunkBytes < 0) {
            throw new IllegalArgumentException(
                    "chunkBytes is " + chunkBytes + ", expected 0 (to choose it) or more");
        }
        CudaDevice.refuseVirtualThread();
        this.devices = new CudaDevice[n];
        for (int r = 0; r < n; r++) {
            this.devices[r] = CudaDevice.of(devices.get(r));
            for (int o = 0; o < r; o++) {
                if (this.devices[o].index() == this.devices[r].index()) {
                    throw new IllegalArgumentException(
                            "ranks "
                                    + o
                                    + " and "
                                    + r
                                    + " are both on "
                                    + this.devices[r]
                                    + ", expected another device for each rank");
                }
            }
        }
        for (Plan plan : plans) {
            if (plan.gpus().size() != n) {
                throw new IllegalArgumentException(
                        "the plan for "
                                + plan.operation().command()
                                + " is for "
                                + plan.gpus().size()
                                + " GPUs, but there are "
                                + n
                                + " devices");
            }
        }
        this.plans = new ArrayList<>(plans);
        this.planner = planner;
        this.chunkBytes = chunkBytes;
        start = new long[n];
        events = new long[n][0];
        scratch = new CudaBuffer[n];
        sendAt = new long[n];
        recvAt = new long[n];
        streams = new CudaStream[n];
        boolean done = false;
        try {
            for (int r = 0; r < n; r++) {
                start[r] = newEvent(r);
            }
            peers = enablePeers();
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    private long newEvent(int rank) {
        return CudaEvent.newHandle(devices[rank], cudart_h.cudaEventDisableTiming());
    }

    /** Lets every device write into every other's memory, as far as they can. */
    private int enablePeers() {
        int enabled = 0;
        for (CudaDevice from : devices) {
            for (CudaDevice to : devices) {
                if (from != to && from.canAccess(to)) {
                    try {
                        from.enablePeerAccess(to);
                        enabled++;
                    } catch (CudaException e) {
                        // There is a limit on peers. CUDA stages such copies in host memory.
                        if (CudaException.isFatal(e.error())) {
                            throw e;
                        }
                    }
                }
            }
        }
        return enabled;
    }

    /** Ordered pairs of devices that copy directly. */
    public int peers() {
        return peers;
    }

    /** By rank. */
    public List<Device> devices() {
        return List.of(devices);
    }

    // ---- operations

    /** See {@link io.jccl.PeerCopies#broadcast}. */
    public synchronized void broadcast(
            Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        checkUsable(streams);
        checkRoot(root);
        take(send, root, "send", send.dataType(), send.count(), "", 1, sendAt);
        takeAll(recv, "recv", send.dataType(), send.count(), "send holds ", 1, recvAt);
        run(Operation.BROADCAST, root, send.byteSize(), root, 0);
    }

    /** See {@link io.jccl.PeerCopies#scatter}. */
    public synchronized void scatter(
            Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        checkUsable(streams);
        checkRoot(root);
        take(send, root, "send", send.dataType(), send.count(), "", 1, sendAt);
        long block = block(send, "send");
        takeAll(recv, "recv", send.dataType(), block, "a block of send has ", 1, recvAt);
        run(Operation.SCATTER, root, send.byteSize() / n, root, 0);
    }

    /** See {@link io.jccl.PeerCopies#gather}. */
    public synchronized void gather(
            List<Buffer> send, Buffer recv, int root, List<? extends Stream> streams) {
        checkUsable(streams);
        checkRoot(root);
        take(recv, root, "recv", recv.dataType(), recv.count(), "", 1, recvAt);
        long block = block(recv, "recv");
        takeAll(send, "send", recv.dataType(), block, "a block of recv has ", 1, sendAt);
        run(Operation.GATHER, root, recv.byteSize() / n, root, 0);
    }

    /** See {@link io.jccl.PeerCopies#allGather}. */
    public synchronized void allGather(
            List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        checkUsable(streams);
        checkSize("send", send.size(), "buffers");
        Buffer first = Objects.requireNonNull(send.get(0), "send[0]");
        long count = first.count();
        takeAll(send, "send", first.dataType(), count, "send[0] holds ", 1, sendAt);
        takeAll(recv, "recv", first.dataType(), count, "send holds ", n, recvAt);
        run(Operation.ALL_GATHER, 0, first.byteSize(), -1, 0);
    }

    /** See {@link io.jccl.PeerCopies#allToAll}. */
    public synchronized void allToAll(
            List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        checkUsable(streams);
        checkSize("send", send.size(), "buffers");
        Buffer first = Objects.requireNonNull(send.get(0), "send[0]");
        block(first, "send[0]");
        takeAll(send, "send", first.dataType(), first.count(), "send[0] holds ", 1, sendAt);
        takeAll(recv, "recv", first.dataType(), first.count(), "send holds ", 1, recvAt);
        int inPlace = 0;
        for (int r = 0; r < n; r++) {
            inPlace += sendAt[r] == recvAt[r] ? 1 : 0;
        }
        if (inPlace != 0 && inPlace != n && first.count() > 0) {
            throw new IllegalArgumentException(
                    "alltoall is in place on "
                            + inPlace
                            + " of "
                            + n
                            + " ranks, expected all of them or none");
        }
        run(Operation.ALL_TO_ALL, 0, first.byteSize() / n, -1, inPlace);
    }

    // ---- checks

    private void checkUsable(List<? extends Stream> list) {
        if (closed) {
            throw new IllegalStateException("these peer copies are closed");
        }
        checkSize("streams", list.size(), "streams");
        for (int r = 0; r < n; r++) {
            CudaStream s = CudaStream.of(list.get(r), devices[r]);
            if (!s.isOpen()) {
                throw new IllegalStateException("the stream of rank " + r + " is closed: " + s);
            }
            streams[r] = s;
        }
        Arrays.fill(sendAt, 0);
        Arrays.fill(recvAt, 0);
    }

    private void checkSize(String name, int size, String what) {
        if (size != n) {
            throw new IllegalArgumentException(
                    name + " has " + size + " " + what + ", expected " + n + ", one for each rank");
        }
    }

    private void checkRoot(int root) {
        if (root < 0 || root >= n) {
            throw new IllegalArgumentException(
                    "root is " + root + ", expected 0 to " + (n - 1) + " of " + n + " ranks");
        }
    }

    private long block(Buffer buffer, String name) {
        if (buffer.count() % n != 0) {
            throw new IllegalArgumentException(
                    name
                            + " holds "
                            + buffer.count()
                            + " elements, expected a multiple of the "
                            + n
                            + " ranks");
        }
        return buffer.count() / n;
    }

    private void takeAll(
            List<Buffer> list,
            String name,
            DataType type,
            long count,
            String because,
            int times,
            long[] at) {
        checkSize(name, list.size(), "buffers");
        for (int r = 0; r < n; r++) {
            take(list.get(r), r, name, type, count, because, times, at);
        }
    }

    /** Checks a buffer of a rank and notes its address. */
    private void take(
            Buffer buffer,
            int rank,
            String name,
            DataType type,
            long count,
            String because,
            int times,
            long[] at) {
        if (!(buffer instanceof CudaBuffer b) || b.device() != devices[rank]) {
            throw new IllegalArgumentException(
                    name
                            + " of rank "
                            + rank
                            + " is on device "
                            + Objects.requireNonNull(buffer, name + " of a rank").device()
                            + ", expected "
                            + devices[rank]);
        }
        if (!b.isOpen()) {
            throw new IllegalStateException(name + " of rank " + rank + " is closed");
        }
        if (b.dataType() != type) {
            throw new IllegalArgumentException(
                    name
                            + " of rank "
                            + rank
                            + " holds elements of "
                            + b.dataType().label()
                            + ", the others of "
                            + type.label());
        }
        if (b.count() != Math.multiplyExact(count, times)) {
            throw new IllegalArgumentException(
                    name
                            + " of rank "
                            + rank
                            + " holds "
                            + b.count()
                            + " elements, expected "
                            + count * times
                            + ": "
                            + because
                            + count);
        }
        at[rank] = b.address();
    }

    /** Throws if a rank's buffers overlap in another way than the operation allows. */
    private void checkOverlap(Operation op, int rank, long block) {
        long send = sendAt[rank];
        long recv = recvAt[rank];
        if (send == 0 || recv == 0) {
            return;
        }
        long sendBytes = op == Operation.SCATTER || op == Operation.ALL_TO_ALL ? n * block : block;
        long recvBytes = op == Operation.SCATTER || op == Operation.BROADCAST ? block : n * block;
        boolean apart = send >= recv + recvBytes || recv >= send + sendBytes;
        long own =
                switch (op) {
                    case SCATTER -> rank * block;
                    case GATHER, ALL_GATHER -> -rank * block;
                    default -> 0;
                };
        if (!apart && recv != send + own) {
            throw new IllegalArgumentException(
                    "send and recv of rank "
                            + rank
                            + " overlap ("
                            + sendBytes
                            + " bytes at 0x"
                            + Long.toHexString(send)
                            + ", "
                            + recvBytes
                            + " at 0x"
                            + Long.toHexString(recv)
                            + "); in place recv would be at 0x"
                            + Long.toHexString(send + own));
        }
    }

    // ---- programs

    private Ready program(Operation op, int root, long block, boolean inPlace) {
        for (int i = 0; i < KEPT; i++) {
            Ready known = kept[i];
            if (known != null && known.program.is(op, root, block, inPlace)) {
                return known;
            }
        }
        Ready made = prepare(make(op, root, block, inPlace));
        kept[nextKept] = made;
        nextKept = (nextKept + 1) % KEPT;
        return made;
    }

    private CopyProgram make(Operation op, int root, long block, boolean inPlace) {
        IllegalArgumentException unfit = null;
        // First those made for this root; rings may do for any.
        for (int exact = 1; exact >= 0 && n > 1; exact--) {
            for (Plan plan : plans) {
                if (plan.operation() == op && (plan.root() == root) == (exact == 1)) {
                    try {
                        return program(plan, op, root, block, inPlace);
                    } catch (IllegalArgumentException e) {
                        unfit = unfit == null ? e : unfit;
                    }
                }
            }
        }
        if (n == 1) {
            return CopyProgram.of(op, root, List.of(), Map.of(), n, block, inPlace, chunkBytes);
        }
        if (planner == null) {
            throw unfit != null
                    ? unfit
                    : new IllegalArgumentException(
                            "there is no plan for "
                                    + op.command()
                                    + (op == Operation.ALL_GATHER || op == Operation.ALL_TO_ALL
                                            ? ""
                                            : " from or to root " + root)
                                    + "; give one that Planner.plan made for this operation");
        }
        Plan plan = planner.apply(op, root);
        CopyProgram made = program(plan, op, root, block, inPlace);
        plans.add(plan);
        return made;
    }

    private CopyProgram program(Plan plan, Operation op, int root, long block, boolean inPlace) {
        Map<Integer, Integer> rankOf = new HashMap<>();
        for (int r = 0; r < n; r++) {
            rankOf.put(plan.gpus().get(r), r);
        }
        return CopyProgram.of(op, root, plan.channels(), rankOf, n, block, inPlace, chunkBytes);
    }

    /** Makes the streams, events and memory that a program needs. */
    private Ready prepare(CopyProgram program) {
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
        return new Ready(program, own);
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

    /** Doubles at least, so that what is outgrown is never more than what is in use. */
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

    // ---- running

    /**
     * Enqueues an operation whose buffers are noted.
     *
     * @param only the rank whose buffers can overlap, -1 for all ranks
     * @param inPlace not 0 if no block of the send buffers may be overwritten before it is sent
     */
    private void run(Operation op, int root, long block, int only, int inPlace) {
        if (block == 0) {
            return;
        }
        for (int r = 0; r < n; r++) {
            if (only < 0 || only == r) {
                checkOverlap(op, r, block);
            }
        }
        Ready ready = program(op, root, block, inPlace != 0);
        CopyProgram p = ready.program;
        boolean begun = false;
        boolean done = false;
        try {
            for (int r = 0; r < n; r++) {
                if (p.used[r] && !streams[r].recordIfNotCapturing(start[r])) {
                    throw new IllegalStateException(
                            streams[r]
                                    + " of rank "
                                    + r
                                    + " is being captured, or closed; peer copies cannot be"
                                    + " captured, as their streams go on from call to call");
                }
            }
            begun = true;
            begin(ready);
            for (int i = 0; i < p.steps.length; i++) {
                step(ready, p.steps[i]);
            }
            end(ready);
            done = true;
        } finally {
            if (begun && !done) {
                endAfterError(ready);
            }
        }
    }

    /** Lanes start behind what is in the streams of both ends. */
    private void begin(Ready ready) {
        CopyProgram p = ready.program;
        for (int i = 0; i < p.lanes.length; i++) {
            CopyProgram.Lane lane = p.lanes[i];
            long stream = ready.lanes[i].stream;
            await(stream, start[lane.from()]);
            if (lane.to() != lane.from()) {
                await(stream, start[lane.to()]);
            }
            if (p.writesScratch[i]) {
                // The last operation may have been on other streams, and still read it.
                for (int k = 0; k < all.length; k++) {
                    if (all[k].lane.from() == lane.to()) {
                        await(stream, all[k].done);
                    }
                }
            }
        }
    }

    private void step(Ready ready, CopyProgram.Step s) {
        long stream = ready.lanes[s.lane()].stream;
        int[] waits = s.waits();
        for (int i = 0; i < waits.length; i++) {
            await(stream, events[s.waitsOn()[i]][waits[i]]);
        }
        CudaApi api = CudaRuntime.api();
        long to = base(s.target(), s.to()) + s.targetAt();
        long from = base(s.source(), s.from()) + s.sourceAt();
        int result = 0;
        if (s.from() != s.to()) {
            result =
                    api.cudaMemcpyPeerAsync(
                            to,
                            devices[s.to()].index(),
                            from,
                            devices[s.from()].index(),
                            s.bytes(),
                            stream);
        } else if (to != from) {
            // Equal if the rank's own block is in its place.
            result =
                    api.cudaMemcpyAsync(
                            to, from, s.bytes(), cudart_h.cudaMemcpyDeviceToDevice(), stream);
        }
        if (result != 0) {
            throw failed(result, ready, s);
        }
        if (s.record() >= 0) {
            record(stream, events[s.from()][s.record()]);
        }
    }

    private RuntimeException failed(int result, Ready ready, CopyProgram.Step s) {
        CopyProgram p = ready.program;
        String what =
                p.op.command()
                        + " of "
                        + p.blockBytes
                        + " bytes a block: copy of "
                        + s.bytes()
                        + " bytes from rank "
                        + s.from()
                        + " ("
                        + devices[s.from()]
                        + ") to rank "
                        + s.to()
                        + " ("
                        + devices[s.to()]
                        + ") on "
                        + p.lanes[s.lane()];
        CudaRuntime.check(result, what);
        return new IllegalStateException(what + " failed with result " + result);
    }

    private long base(CopyProgram.Place place, int rank) {
        return switch (place) {
            case SEND -> sendAt[rank];
            case RECV -> recvAt[rank];
            case SCRATCH -> Objects.requireNonNull(scratch[rank]).address();
        };
    }

    private static void await(long stream, long event) {
        int result = CudaRuntime.api().cudaStreamWaitEvent(stream, event, 0);
        if (result != 0) {
            CudaRuntime.check(result, "cudaStreamWaitEvent");
        }
    }

    private static void record(long stream, long event) {
        int result = CudaRuntime.api().cudaEventRecord(event, stream);
        if (result != 0) {
            CudaRuntime.check(result, "cudaEventRecord");
        }
    }

    /** The streams of both ends go on behind the lanes. */
    private void end(Ready ready) {
        CopyProgram p = ready.program;
        for (int i = 0; i < p.lanes.length; i++) {
            CopyProgram.Lane lane = p.lanes[i];
            record(ready.lanes[i].stream, ready.lanes[i].done);
            streams[lane.from()].waitForEvent(ready.lanes[i].done);
            if (lane.to() != lane.from()) {
                streams[lane.to()].waitForEvent(ready.lanes[i].done);
            }
        }
    }

    /** So that buffers may be freed, or used anew, behind the streams after an error as well. */
    private void endAfterError(Ready ready) {
        try {
            end(ready);
        } catch (JcclException e) {
            // The first error is thrown and tells more.
        }
    }

    /** The streams of the lanes, for tests. */
    long laneStream(int channel, int from, int to) {
        return Objects.requireNonNull(lanes.get(new CopyProgram.Lane(channel, from, to))).stream;
    }

    /** Waits for all copies, for ten seconds at most, and frees what there is. */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        CudaApi api = CudaRuntime.api();
        boolean idle = CudaStream.await(CLOSE_WAIT, this::isIdle, false, () -> {});
        api.cudaGetLastError();
        List<AutoCloseable> steps = new ArrayList<>();
        for (LaneStream lane : all) {
            // Work that is left goes on; CUDA frees the stream behind it.
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
            // Else copies may still use the memory, and freeing it would wait for them.
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

    @Override
    public String toString() {
        return "peer copies between " + Arrays.toString(devices);
    }
}

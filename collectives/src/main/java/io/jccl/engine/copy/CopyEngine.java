package io.jccl.engine.copy;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.engine.copy.CopyResources.LaneStream;
import io.jccl.error.JcclException;
import io.jccl.topology.Operation;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiFunction;
import org.jspecify.annotations.Nullable;

/** Runs {@link CopyProgram}s: the streams, events and scratch memory of peer copies. */
public final class CopyEngine implements AutoCloseable {
    /** Programs kept: a call of one of the latest sizes allocates nothing. */
    private static final int KEPT = 32;

    /** A program with the streams of its lanes. */
    private record Ready(CopyProgram program, LaneStream[] lanes) {}

    private final CudaDevice[] devices;
    private final int n;
    private final List<Plan> plans;
    private final @Nullable BiFunction<Operation, Integer, Plan> planner;
    private final long chunkBytes;

    private final CopyArguments arguments;
    private final CopyResources resources;

    private final @Nullable Ready[] kept = new Ready[KEPT];
    private int nextKept;

    private final int peers;
    private boolean closed;

    /**
     * Creates the engine for devices, with the resources that every plan needs.
     *
     * @param devices by rank
     * @param plans existing plans
     * @param planner creates the plan of an operation and root that {@code plans} lacks; null if
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
                            ("ranks %s and %s are both on %s, expected another device for each"
                                            + " rank")
                                    .formatted(o, r, this.devices[r]));
                }
            }
        }
        for (Plan plan : plans) {
            if (plan.gpus().size() != n) {
                throw new IllegalArgumentException(
                        "the plan for %s is for %s GPUs, but there are %s devices"
                                .formatted(plan.operation().command(), plan.gpus().size(), n));
            }
        }
        this.plans = new ArrayList<>(plans);
        this.planner = planner;
        this.chunkBytes = chunkBytes;
        arguments = new CopyArguments(this.devices);
        peers = enablePeers();
        resources = new CopyResources(this.devices);
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
        begin(streams);
        arguments.checkRoot(root);
        arguments.take(send, root, "send", send.dataType(), send.count(), "", 1, arguments.sendAt);
        arguments.takeAll(
                recv, "recv", send.dataType(), send.count(), "send holds ", 1, arguments.recvAt);
        run(Operation.BROADCAST, root, send.byteSize(), root, 0);
    }

    /** See {@link io.jccl.PeerCopies#scatter}. */
    public synchronized void scatter(
            Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        begin(streams);
        arguments.checkRoot(root);
        arguments.take(send, root, "send", send.dataType(), send.count(), "", 1, arguments.sendAt);
        long block = arguments.block(send, "send");
        arguments.takeAll(
                recv, "recv", send.dataType(), block, "a block of send has ", 1, arguments.recvAt);
        run(Operation.SCATTER, root, send.byteSize() / n, root, 0);
    }

    /** See {@link io.jccl.PeerCopies#gather}. */
    public synchronized void gather(
            List<Buffer> send, Buffer recv, int root, List<? extends Stream> streams) {
        begin(streams);
        arguments.checkRoot(root);
        arguments.take(recv, root, "recv", recv.dataType(), recv.count(), "", 1, arguments.recvAt);
        long block = arguments.block(recv, "recv");
        arguments.takeAll(
                send, "send", recv.dataType(), block, "a block of recv has ", 1, arguments.sendAt);
        run(Operation.GATHER, root, recv.byteSize() / n, root, 0);
    }

    /** See {@link io.jccl.PeerCopies#allGather}. */
    public synchronized void allGather(
            List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        begin(streams);
        arguments.checkSize("send", send.size(), "buffers");
        Buffer first = Objects.requireNonNull(send.get(0), "send[0]");
        long count = first.count();
        arguments.takeAll(
                send, "send", first.dataType(), count, "send[0] holds ", 1, arguments.sendAt);
        arguments.takeAll(
                recv, "recv", first.dataType(), count, "send holds ", n, arguments.recvAt);
        run(Operation.ALL_GATHER, 0, first.byteSize(), -1, 0);
    }

    /** See {@link io.jccl.PeerCopies#allToAll}. */
    public synchronized void allToAll(
            List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        begin(streams);
        arguments.checkSize("send", send.size(), "buffers");
        Buffer first = Objects.requireNonNull(send.get(0), "send[0]");
        arguments.block(first, "send[0]");
        arguments.takeAll(
                send,
                "send",
                first.dataType(),
                first.count(),
                "send[0] holds ",
                1,
                arguments.sendAt);
        arguments.takeAll(
                recv, "recv", first.dataType(), first.count(), "send holds ", 1, arguments.recvAt);
        int inPlace = 0;
        for (int r = 0; r < n; r++) {
            inPlace += arguments.sendAt[r] == arguments.recvAt[r] ? 1 : 0;
        }
        if (inPlace != 0 && inPlace != n && first.count() > 0) {
            throw new IllegalArgumentException(
                    "alltoall is in place on %s of %s ranks, expected all of them or none"
                            .formatted(inPlace, n));
        }
        run(Operation.ALL_TO_ALL, 0, first.byteSize() / n, -1, inPlace);
    }

    private void begin(List<? extends Stream> streams) {
        if (closed) {
            throw new IllegalStateException("these peer copies are closed");
        }
        arguments.begin(streams);
    }

    // ---- programs

    private Ready program(Operation op, int root, long block, boolean inPlace) {
        for (int i = 0; i < KEPT; i++) {
            Ready known = kept[i];
            if (known != null && known.program.is(op, root, block, inPlace)) {
                return known;
            }
        }
        CopyProgram program = make(op, root, block, inPlace);
        Ready made = new Ready(program, resources.prepare(program));
        kept[nextKept] = made;
        nextKept = (nextKept + 1) % KEPT;
        return made;
    }

    private CopyProgram make(Operation op, int root, long block, boolean inPlace) {
        IllegalArgumentException unfit = null;
        // Plans for this root first; rings may serve any root.
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

    // ---- running

    /**
     * Enqueues an operation whose buffers have been taken.
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
                arguments.checkOverlap(op, r, block);
            }
        }
        Ready ready = program(op, root, block, inPlace != 0);
        CopyProgram p = ready.program;
        boolean begun = false;
        boolean done = false;
        try {
            for (int r = 0; r < n; r++) {
                if (p.used[r] && !arguments.streams[r].recordIfNotCapturing(resources.start(r))) {
                    throw new IllegalStateException(
                            ("%s of rank %s is being captured, or closed; peer copies cannot be"
                                            + " captured, as their streams are reused from call"
                                            + " to call")
                                    .formatted(arguments.streams[r], r));
                }
            }
            begun = true;
            startLanes(ready);
            for (int i = 0; i < p.steps.length; i++) {
                step(ready, p.steps[i]);
            }
            endLanes(ready);
            done = true;
        } finally {
            if (begun && !done) {
                endAfterError(ready);
            }
        }
    }

    /** Lanes start after the work in the streams of both ends. */
    private void startLanes(Ready ready) {
        CopyProgram p = ready.program;
        for (int i = 0; i < p.lanes.length; i++) {
            CopyProgram.Lane lane = p.lanes[i];
            long stream = ready.lanes[i].stream();
            await(stream, resources.start(lane.from()));
            if (lane.to() != lane.from()) {
                await(stream, resources.start(lane.to()));
            }
            if (p.writesScratch[i]) {
                // The last operation may have been on other streams, and still read it.
                LaneStream[] all = resources.all();
                for (int k = 0; k < all.length; k++) {
                    if (all[k].lane().from() == lane.to()) {
                        await(stream, all[k].done());
                    }
                }
            }
        }
    }

    private void step(Ready ready, CopyProgram.Step s) {
        long stream = ready.lanes[s.lane()].stream();
        int[] waits = s.waits();
        for (int i = 0; i < waits.length; i++) {
            await(stream, resources.event(s.waitsOn()[i], waits[i]));
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
            record(stream, resources.event(s.from(), s.record()));
        }
    }

    private RuntimeException failed(int result, Ready ready, CopyProgram.Step s) {
        CopyProgram p = ready.program;
        String what =
                "%s of %s bytes a block: copy of %s bytes from rank %s (%s) to rank %s (%s) on %s"
                        .formatted(
                                p.op.command(),
                                p.blockBytes,
                                s.bytes(),
                                s.from(),
                                devices[s.from()],
                                s.to(),
                                devices[s.to()],
                                p.lanes[s.lane()]);
        CudaRuntime.check(result, what);
        return new IllegalStateException(what + " failed with result " + result);
    }

    private long base(CopyProgram.Place place, int rank) {
        return switch (place) {
            case SEND -> arguments.sendAt[rank];
            case RECV -> arguments.recvAt[rank];
            case SCRATCH -> resources.scratch(rank);
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

    /** The streams of both ends continue after the lanes. */
    private void endLanes(Ready ready) {
        CopyProgram p = ready.program;
        for (int i = 0; i < p.lanes.length; i++) {
            CopyProgram.Lane lane = p.lanes[i];
            record(ready.lanes[i].stream(), ready.lanes[i].done());
            arguments.streams[lane.from()].waitForEvent(ready.lanes[i].done());
            if (lane.to() != lane.from()) {
                arguments.streams[lane.to()].waitForEvent(ready.lanes[i].done());
            }
        }
    }

    /** After an error too, buffers can be freed or reused in stream order. */
    private void endAfterError(Ready ready) {
        try {
            endLanes(ready);
        } catch (JcclException e) {
            // The first error is thrown; it has the cause.
        }
    }

    /** The stream of a lane, for tests. */
    long laneStream(int channel, int from, int to) {
        return resources.stream(channel, from, to);
    }

    /** Waits for all copies, ten seconds at most, and frees everything. */
    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            resources.close();
        }
    }

    @Override
    public String toString() {
        return "peer copies between " + Arrays.toString(devices);
    }
}

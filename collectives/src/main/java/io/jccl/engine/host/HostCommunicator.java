package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.ReduceOp;
import io.jccl.bootstrap.Control;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Batch;
import io.jccl.engine.Request;
import io.jccl.error.JcclException;
import io.jccl.flight.Collective;
import io.jccl.flight.FlightAttendant;
import io.jccl.flight.Standing;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One rank on the host engine.
 *
 * <p>Every collective starts alike: the rank writes what it asks for into one of its two slots,
 * publishes the operation's number, and waits for the same number of every other rank. Then all
 * know what all want, and either go on alike or all throw alike. Small payloads travel in the slot
 * itself, so that one exchange of cache lines is all there is to a small operation. Slots
 * alternate: a rank that publishes number s has seen everyone's s - 1, so nobody reads its slot of
 * s - 2.
 */
final class HostCommunicator extends HostRank {
    /**
     * About as long as a change of threads takes: a core may have to be shared with the other rank.
     */
    private static final int SPINS = 256;

    private static final int SPINS_OVERSUBSCRIBED = 20;
    private static final int YIELDS = 2000;

    /** So many waits in a row that outlast the spinning mean that ranks share a core. */
    private static final int NAP_AFTER = 64;

    private static final long PARK_MIN_NANOS = 20_000;
    private static final long PARK_MAX_NANOS = 500_000;
    private static final long LIVENESS_NANOS = 50_000_000;

    /** How long to wait for what the other ranks say when they disagree. */
    private static final long ANSWER_NANOS = 2_000_000_000L;

    /** The same for those who write their answer when the time for it ends. */
    private static final long LAST_ANSWER_NANOS = 50_000_000;

    /** The parts of a signature that ranks must agree on; above are flags of the rank's own. */
    private static final long AGREED = 0x0000ffff_ffffffffL;

    private static final long FLAG_IN_PLACE = 1L << 48;
    private static final long FLAG_FOREIGN = 1L << 49;

    private final Fabric fabric;
    private final Control control;
    private final MemorySegment memory;
    private final CommunicatorOptions options;
    private final long timeoutNanos;

    /** How long a rank waits before it asks the others how far they are; they answer meanwhile. */
    private final long askNanos;

    private final int rank;
    private final int n;
    private final int spins;

    /** Payloads up to this many bytes travel in the slot; the same on all ranks. */
    private final long eagerLimit;

    private final Reducer reducer;
    private final PointToPoint messages;
    private final Algorithms algorithms;
    private final Backoff backoff = new Backoff();

    /** Of where all ranks are; the same on all of them. */
    private HostPlan plan = HostPlan.FLAT;

    private long sequence;
    private long tick;
    private long splits;

    /** Waits in a row that outlasted the spinning. */
    private int slowWaits;

    private @Nullable Request current;

    /** The last question that this rank has answered; guarded by this. */
    private long answered;

    private final Runnable attended = this::attend;

    /** What made this communicator unusable. */
    private volatile @Nullable RuntimeException failure;

    private volatile boolean closed;

    HostCommunicator(Fabric fabric, int rank, CommunicatorOptions options) {
        super(rank, fabric.ranks, fabric.device());
        this.fabric = fabric;
        this.control = fabric.control;
        this.memory = control.memory;
        this.options = options;
        this.timeoutNanos = Deadline.nanos(options.timeout());
        this.askNanos = timeoutNanos - Standing.answerNanos(timeoutNanos);
        this.rank = rank;
        this.n = fabric.ranks;
        boolean crowded = n > Runtime.getRuntime().availableProcessors();
        this.spins = crowded ? SPINS_OVERSUBSCRIBED : SPINS;
        this.eagerLimit = AlgorithmTable.eagerLimit(n);
        this.reducer = new Reducer(n);
        this.messages = new PointToPoint(this, fabric, rank);
        this.algorithms = new Algorithms(this, messages, fabric, reducer, rank);
        FlightAttendant.attend(attended);
    }

    /**
     * Takes the plan for where all ranks are, once all have said it, before the first operation.
     */
    HostCommunicator plan(HostPlan made) {
        plan = made;
        if (made.order().length == n) {
            algorithms.order(made.order());
        }
        return this;
    }

    // ---- what the base class asks for

    @Override
    public String engine() {
        return fabric.engine();
    }

    @Override
    public Algorithm algorithmFor(String operation, long blockBytes) {
        return AlgorithmTable.choose(
                Collective.ofMethod(operation), blockBytes, n, options.algorithm(), plan);
    }

    @Override
    protected String communicatorId() {
        return fabric.id();
    }

    @Override
    protected void checkUsable() {
        if (closed) {
            throw new IllegalStateException("the communicator of rank " + rank + " is closed");
        }
        RuntimeException f = failure;
        if (f != null) {
            throw f;
        }
    }

    @Override
    protected void execute(Request q) {
        checkUsable();
        current = q;
        try {
            checkAborted();
            if (q.op.peerToPeer()) {
                messages.add(q);
                messages.finish();
            } else {
                collective(q, false);
            }
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current = null;
        }
    }

    @Override
    protected void execute(Batch batch) {
        checkUsable();
        try {
            checkAborted();
            for (int i = 0; i < batch.size(); i++) {
                if (batch.get(i).op.peerToPeer()) {
                    messages.add(batch.get(i));
                }
            }
            messages.progress();
            int last = batch.size() - 1;
            while (last >= 0 && batch.get(last).op.peerToPeer()) {
                last--;
            }
            for (int i = 0; i <= last; i++) {
                current = batch.get(i);
                if (!current.op.peerToPeer()) {
                    // While it waits it moves the messages on, so no order can deadlock.
                    collective(current, i < last);
                }
            }
            current = null;
            messages.finish();
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current = null;
        }
    }

    @Override
    public MemorySegment @Nullable [] peerMemory(Buffer buffer) {
        refuseInGroup("peerMemory");
        HostBuffer own = (HostBuffer) buffer;
        Stream stream = device().defaultStream();
        MemorySegment[] seen = new MemorySegment[n];
        try (Buffer places = device().allocate(DataType.INT64, 2L * n)) {
            places.setLong(2L * rank, fabric.publish(rank, 0, false, own));
            places.setLong(2L * rank + 1, fabric.offset(own));
            allGather(places, stream);
            boolean all = true;
            for (int p = 0; p < n; p++) {
                all &= places.getLong(2L * p) != HostBuffer.PRIVATE;
            }
            if (!all) {
                return null;
            }
            // Once more, since the allGather may have published its own.
            fabric.publish(rank, 0, false, own);
            barrier(stream);
            for (int p = 0; p < n; p++) {
                seen[p] =
                        p == rank
                                ? own.segment()
                                : fabric.published(p, 0, false, places.getLong(2L * p))
                                        .asSlice(places.getLong(2L * p + 1), own.byteSize());
            }
            // Until all have looked.
            barrier(stream);
        }
        return seen;
    }

    // ---- one collective

    /**
     * Runs one.
     *
     * @param followed whether another one of the same group follows
     */
    private void collective(Request q, boolean followed) {
        Collective op = q.op;
        long s = ++sequence;
        int parity = (int) (s & 1);
        long slot = control.slot(rank, parity);
        int size = q.type.size();
        long block = q.count * size;
        boolean source = op.sends(rank, q.root);
        boolean target = op.receives(rank, q.root);
        Algorithm algorithm = AlgorithmTable.choose(op, block, n, options.algorithm(), plan);
        q.algorithm = algorithm;
        long payload = op.manySend() ? block * n : block;
        boolean eager = algorithm == Algorithm.DIRECT && !op.vector() && payload <= eagerLimit;
        long signature = signature(op, q.type, q.reduceOp.kind(), algorithm, q.root);
        if (q.inPlace) {
            signature |= FLAG_IN_PLACE;
        }
        control.set(slot + Control.COUNT, q.count);
        control.set(slot + Control.FACTOR, q.reduceOp.factorBits(q.type));
        if (!eager) {
            signature |= publishPlaces(q, slot, parity, source, target);
        } else if (source && payload > 0) {
            MemorySegment.copy(
                    ((HostBuffer) q.sendBuffer()).segment(),
                    0,
                    memory,
                    slot + Control.PAYLOAD,
                    payload);
        }
        control.set(slot + Control.SIGNATURE, signature);
        control.release(slot + Control.SEQ, s);
        meet(s, parity, signature & AGREED, q.count);
        if (eager) {
            if (target && payload > 0) {
                finishEager(q, parity, block);
            }
            return;
        }
        if (op.vector()) {
            checkTables(parity);
        }
        switch (algorithm) {
            case DIRECT -> {
                if (anyForeign(parity)) {
                    algorithms.staged(q, parity);
                } else {
                    direct(q, parity, target, size);
                    // Where ranks only read each other's buffers, the next one's meeting says as
                    // well that all are done: nobody writes to his own before he has been there.
                    if (followed && !pushes(op) && !anyInPlace(parity)) {
                        announceTick();
                    } else {
                        barrierTick();
                    }
                }
            }
            case RING -> algorithms.ring(q, parity);
            case TREE -> algorithms.tree(q, parity);
            case RECURSIVE_DOUBLING -> algorithms.doubling(q);
            default -> algorithms.pairwise(q, parity);
        }
    }

    private static long signature(
            Collective op, DataType type, ReduceOp.Kind kind, Algorithm algorithm, int root) {
        return op.ordinal()
                | (long) type.ordinal() << 8
                | (long) kind.ordinal() << 16
                | (long) algorithm.ordinal() << 24
                | (long) root << 32;
    }

    /** Writes where the buffers are, and the tables of a v-variant; returns flags. */
    private long publishPlaces(Request q, long slot, int parity, boolean source, boolean target) {
        boolean foreign = false;
        if (source) {
            HostBuffer b = (HostBuffer) q.sendBuffer();
            int chunk = fabric.publish(rank, parity, false, b);
            foreign = chunk == HostBuffer.PRIVATE;
            control.set(slot + Control.SEND_CHUNK, chunk);
            control.set(slot + Control.SEND_AT, fabric.offset(b));
        }
        if (target) {
            HostBuffer b = (HostBuffer) q.recvBuffer();
            int chunk = fabric.publish(rank, parity, true, b);
            // Only these have other ranks write into the receiver's buffer.
            boolean pushed = pushes(q.op) || (q.op.manySend() && q.op.manyRecv());
            foreign |= pushed && chunk == HostBuffer.PRIVATE;
            control.set(slot + Control.RECV_CHUNK, chunk);
            control.set(slot + Control.RECV_AT, fabric.offset(b));
        }
        if (q.op.vector()) {
            writeTable(parity, 0, q.sendCounts);
            writeTable(parity, 1, q.sendDispls);
            writeTable(parity, 2, q.recvCounts);
            writeTable(parity, 3, q.recvDispls);
        }
        return foreign ? FLAG_FOREIGN : 0;
    }

    private void writeTable(int parity, int which, long[] values) {
        long at = control.table(rank, parity, which);
        for (int i = 0; i < n; i++) {
            control.set(at + (long) i * Long.BYTES, values[i]);
        }
    }

    /**
     * An entry of a rank's table: 0 send counts, 1 displacements, 2 recv counts, 3 displacements.
     */
    long table(int r, int parity, int which, int i) {
        return control.get(control.table(r, parity, which) + (long) i * Long.BYTES);
    }

    /** Waits until every rank has published operation s, and throws unless all agree. */
    private void meet(long s, int parity, long agreed, long count) {
        boolean same = true;
        for (int i = 1; i < n; i++) {
            int p = rank + i < n ? rank + i : rank + i - n;
            long slot = control.slot(p, parity);
            if (control.acquire(slot + Control.SEQ) < s) {
                await(slot + Control.SEQ, s, p);
            }
            same &=
                    (control.get(slot + Control.SIGNATURE) & AGREED) == agreed
                            && control.get(slot + Control.COUNT) == count;
        }
        if (!same) {
            throw new CollectiveMismatchException(
                    disagreement(s, parity)
                            + ". "
                            + table(
                                    standings(
                                            control.ask(),
                                            System.nanoTime() + ANSWER_NANOS,
                                            false)));
        }
    }

    private String disagreement(long s, int parity) {
        StringBuilder b =
                new StringBuilder("the ranks disagree on operation #").append(s).append(':');
        for (int p = 0; p < n; p++) {
            b.append(p == 0 ? " " : "; ").append("rank ").append(p).append(" calls ");
            describeSlot(b, p, parity);
        }
        return b.append(". All ranks must call the same operations in the same order").toString();
    }

    private void describeSlot(StringBuilder b, int p, int parity) {
        long slot = control.slot(p, parity);
        long sig = control.get(slot + Control.SIGNATURE);
        Collective op = Collective.values()[(int) (sig & 0xff)];
        b.append(
                op.describe(
                        DataType.values()[(int) (sig >> 8 & 0xff)],
                        control.get(slot + Control.COUNT),
                        ReduceOp.Kind.values()[(int) (sig >> 16 & 0xff)],
                        (int) (sig >> 32 & 0xffff)));
        Algorithm a = Algorithm.values()[(int) (sig >> 24 & 0xff)];
        if (a != Algorithm.DIRECT) {
            b.append(" by ").append(a);
        }
    }

    /** What rank i sends to j must be what j expects from i; every rank checks all pairs. */
    private void checkTables(int parity) {
        StringBuilder wrong = null;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                long sent = table(i, parity, 0, j);
                long expected = table(j, parity, 2, i);
                if (sent != expected) {
                    wrong = wrong == null ? new StringBuilder() : wrong.append("; ");
                    wrong.append("rank ")
                            .append(i)
                            .append(" sends ")
                            .append(sent)
                            .append(" elements to rank ")
                            .append(j)
                            .append(", which expects ")
                            .append(expected);
                }
            }
        }
        if (wrong != null) {
            throw new CollectiveMismatchException(
                    "the ranks disagree on the counts of "
                            + Objects.requireNonNull(current)
                            + " #"
                            + sequence
                            + ": "
                            + wrong);
        }
    }

    private boolean anyForeign(int parity) {
        boolean any = false;
        for (int p = 0; p < n; p++) {
            any |= flag(p, parity, FLAG_FOREIGN);
        }
        return any;
    }

    private boolean flag(int p, int parity, long flag) {
        return (control.get(control.slot(p, parity) + Control.SIGNATURE) & flag) != 0;
    }

    long factor(int p, int parity) {
        return control.get(control.slot(p, parity) + Control.FACTOR);
    }

    /** Everything is in the slots: take what is ours. */
    private void finishEager(Request q, int parity, long block) {
        Collective op = q.op;
        HostBuffer recv = (HostBuffer) q.recvBuffer();
        long at = Control.PAYLOAD + (op.manySend() ? rank * block : 0);
        if (op.reduces()) {
            Reducer r = reducer.begin(q.type, q.reduceOp.kind());
            for (int p = 0; p < n; p++) {
                r.addSource(memory, control.slot(p, parity) + at, factor(p, parity));
            }
            r.addTarget(recv.segment(), 0);
            r.run(0, q.count);
            return;
        }
        int first = op.rootSends() ? q.root : 0;
        int last = op.rootSends() ? q.root : n - 1;
        for (int p = first; p <= last; p++) {
            MemorySegment.copy(
                    memory,
                    control.slot(p, parity) + at,
                    recv.segment(),
                    op.manyRecv() ? p * block : 0,
                    block);
        }
    }

    // ---- direct: ranks read, and where it pays write, each other's buffers

    private static boolean pushes(Collective op) {
        return (op.reduces() && !op.manySend())
                || op == Collective.GATHER
                || op == Collective.GATHERV;
    }

    private MemorySegment sendOf(Request q, int p, int parity) {
        if (p == rank) {
            return ((HostBuffer) q.sendBuffer()).segment();
        }
        long slot = control.slot(p, parity);
        return fabric.published(p, parity, false, control.get(slot + Control.SEND_CHUNK));
    }

    private long sendAt(int p, int parity) {
        return p == rank ? 0 : control.get(control.slot(p, parity) + Control.SEND_AT);
    }

    /** This rank's own buffer need not be one that others can see. */
    private MemorySegment recvOf(Request q, int p, int parity) {
        if (p == rank) {
            return ((HostBuffer) q.recvBuffer()).segment();
        }
        long slot = control.slot(p, parity);
        return fabric.published(p, parity, true, control.get(slot + Control.RECV_CHUNK));
    }

    private long recvAt(int p, int parity) {
        return p == rank ? 0 : control.get(control.slot(p, parity) + Control.RECV_AT);
    }

    /** Where in p's send buffer the block for rank r starts, in elements. */
    private long sendDispl(Request q, int p, int r, int parity) {
        if (q.op.vector()) {
            return table(p, parity, 1, r);
        }
        return q.op.manySend() ? r * q.count : 0;
    }

    /** Where in r's receive buffer the block from rank p starts, in elements. */
    private long recvDispl(Request q, int r, int p, int parity) {
        if (q.op.vector()) {
            return table(r, parity, 3, p);
        }
        return q.op.manyRecv() ? p * q.count : 0;
    }

    private long blockCount(Request q, int from, int to, int parity) {
        return q.op.vector() ? table(from, parity, 0, to) : q.count;
    }

    private void direct(Request q, int parity, boolean target, int size) {
        Collective op = q.op;
        if (op.reduces()) {
            directReduce(q, parity, size);
        } else if (pushes(op)) {
            directCopy(q, rank, q.root, parity, size);
        } else if (op.manySend() && op.manyRecv() && anyInPlace(parity)) {
            for (int i = 1; i < n; i++) {
                int p = (rank + i) % n;
                // Each pair is exchanged by one of its two ranks, about as many by each.
                boolean mine = ((rank + p) % 2 == 0) == (rank < p);
                if (mine) {
                    exchange(q, rank, p, parity, size);
                }
            }
            if (!q.inPlace) {
                directCopy(q, rank, rank, parity, size);
            }
        } else if (target) {
            for (int i = 0; i < n; i++) {
                int p = rank + i < n ? rank + i : rank + i - n;
                boolean own = p == rank && q.inPlace;
                if (op.sends(p, q.root) && !own) {
                    directCopy(q, p, rank, parity, size);
                }
            }
        }
    }

    private boolean anyInPlace(int parity) {
        boolean any = false;
        for (int p = 0; p < n; p++) {
            any |= flag(p, parity, FLAG_IN_PLACE);
        }
        return any;
    }

    private void directCopy(Request q, int from, int to, int parity, int size) {
        if (from == to && q.inPlace) {
            return;
        }
        Reducer.copy(
                sendOf(q, from, parity),
                sendAt(from, parity) + sendDispl(q, from, to, parity) * size,
                recvOf(q, to, parity),
                recvAt(to, parity) + recvDispl(q, to, from, parity) * size,
                blockCount(q, from, to, parity) * size);
    }

    /** Gives a its block from b and b its block from a, where either may be in place. */
    private void exchange(Request q, int a, int b, int parity, int size) {
        long toB = blockCount(q, a, b, parity) * size;
        long toA = blockCount(q, b, a, parity) * size;
        MemorySegment keep = fabric.scratch(rank);
        long keepAt = fabric.scratchAt(rank);
        for (long x = 0; x < Math.max(toA, toB); x += Fabric.SCRATCH) {
            long lengthB = Math.max(0, Math.min(Fabric.SCRATCH, toB - x));
            long lengthA = Math.max(0, Math.min(Fabric.SCRATCH, toA - x));
            MemorySegment.copy(
                    sendOf(q, a, parity),
                    sendAt(a, parity) + sendDispl(q, a, b, parity) * size + x,
                    keep,
                    keepAt,
                    lengthB);
            MemorySegment.copy(
                    sendOf(q, b, parity),
                    sendAt(b, parity) + sendDispl(q, b, a, parity) * size + x,
                    recvOf(q, a, parity),
                    recvAt(a, parity) + recvDispl(q, a, b, parity) * size + x,
                    lengthA);
            MemorySegment.copy(
                    keep,
                    keepAt,
                    recvOf(q, b, parity),
                    recvAt(b, parity) + recvDispl(q, b, a, parity) * size + x,
                    lengthB);
        }
    }

    /** Reduces this rank's share, or for reduceScatter this rank's block. */
    private void directReduce(Request q, int parity, int size) {
        Reducer r = reducer.begin(q.type, q.reduceOp.kind());
        boolean own = q.op.manySend();
        for (int p = 0; p < n; p++) {
            long at = sendAt(p, parity) + (own ? sendDispl(q, p, rank, parity) * size : 0);
            r.addSource(sendOf(q, p, parity), at, factor(p, parity));
        }
        if (own) {
            r.addTarget(recvOf(q, rank, parity), recvAt(rank, parity));
            r.run(0, blockCount(q, rank, rank, parity));
            return;
        }
        if (q.op.rootReceives()) {
            r.addTarget(recvOf(q, q.root, parity), recvAt(q.root, parity));
        } else {
            for (int i = 0; i < n; i++) {
                int p = rank + i < n ? rank + i : rank + i - n;
                r.addTarget(recvOf(q, p, parity), recvAt(p, parity));
            }
        }
        r.run(share(q.count, rank), share(q.count, rank + 1));
    }

    /** First element of a rank's share; shares meet on whole pairs of cache lines. */
    long share(long count, int r) {
        long each = (count + n - 1) / n;
        each = (each + 127) / 128 * 128;
        return Math.min(count, r * each);
    }

    // ---- waiting

    /** A barrier on counters that only grow: cheap, and any number can follow each other. */
    void barrierTick() {
        announceTick();
        long t = tick;
        for (int i = 1; i < n; i++) {
            int p = rank + i < n ? rank + i : rank + i - n;
            long at = control.state(p) + Control.TICK;
            if (control.acquire(at) < t) {
                await(at, t, p);
            }
        }
    }

    /** This rank's part of {@link #barrierTick}, for the others, which may wait for it. */
    private void announceTick() {
        control.release(control.state(rank) + Control.TICK, ++tick);
    }

    /** Waits until a word that rank p writes has reached a value. */
    void await(long at, long value, int p) {
        for (int i = 0; i < spins; i++) {
            if (control.acquire(at) >= value) {
                slowWaits = 0;
                return;
            }
            Thread.onSpinWait();
        }
        if (++slowWaits % NAP_AFTER == 0) {
            // Another core may be idle: whoever wakes up is put on it, whereas two that only yield
            // to each other can stay together for long.
            LockSupport.parkNanos(1);
        }
        backoff.start();
        try {
            while (control.acquire(at) < value) {
                if (!messages.progress()) {
                    backoff.pause(p, at, value);
                }
            }
        } finally {
            backoff.end();
        }
    }

    Backoff backoff() {
        return backoff;
    }

    int spins() {
        return spins;
    }

    /** Yields, then parks for longer and longer, and looks for reasons to give up. */
    final class Backoff {
        private int rounds;
        private long started;
        private long nextLook;
        private long park = PARK_MIN_NANOS;
        private long question;
        private long answersBy;
        private long interrupted;

        /**
         * Begins a new wait, which {@link #end} ends; the object is used again so that waiting
         * allocates nothing.
         */
        void start() {
            rounds = 0;
            started = 0;
            nextLook = 0;
            park = PARK_MIN_NANOS;
            question = 0;
            interrupted = 0;
        }

        /** Gives the thread the interrupt back that came while it waited. */
        void end() {
            Interrupts.restore(interrupted);
        }

        /**
         * Pauses once; p is the rank waited for, or -1 for any, at and value what it must write.
         */
        void pause(int p, long at, long value) {
            rounds++;
            checkAborted();
            if (rounds < YIELDS) {
                Thread.yield();
                return;
            }
            long now = System.nanoTime();
            if (started == 0) {
                started = now;
            }
            if (now - nextLook >= 0 || nextLook == 0) {
                nextLook = now + LIVENESS_NANOS;
                look(p, at, value);
                if (now - started > askNanos) {
                    if (question == 0) {
                        question = control.ask();
                        // All of that time also where this process was stopped meanwhile.
                        answersBy = now + timeoutNanos - askNanos;
                    }
                    if (now - started > timeoutNanos) {
                        throw expire(question, answersBy);
                    }
                    nextLook = Math.min(nextLook, started + timeoutNanos);
                }
            }
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                throw Interrupts.error(
                        "rank " + rank + " of " + n + " in " + here(),
                        waitedFor()
                                + ". The others cannot finish the operation without this rank, so"
                                + " the communicator has failed on all");
            }
            LockSupport.parkNanos(park);
            park = Math.min(PARK_MAX_NANOS, park * 2);
        }

        private void look(int p, long at, long value) {
            for (int r = 0; r < n; r++) {
                boolean concerns = p < 0 ? messages.waitsFor(r) : p == r;
                if (!concerns || r == rank) {
                    continue;
                }
                boolean left = control.acquire(control.state(r) + Control.CLOSED) != 0;
                boolean dead = !left && !fabric.isAlive(r);
                // It may have done its part before it went.
                if ((left || dead)
                        && (p < 0 ? !messages.progress() : control.acquire(at) < value)) {
                    throw new RankFailedException(
                            fabric.nameOf(r)
                                    + (left ? " closed its communicator" : " died")
                                    + " while rank "
                                    + rank
                                    + " waited for it in "
                                    + here());
                }
            }
        }
    }

    private void checkAborted() {
        if (control.aborted()) {
            throw abortedByPeer();
        }
    }

    private String here() {
        Request q = current != null ? current : messages.unfinished();
        return (q == null ? "an operation" : q.toString()) + " #" + sequence;
    }

    private JcclException abortedByPeer() {
        int by = control.abortRank();
        String text = by == rank ? control.abortText() : "rank " + by + ": " + control.abortText();
        return switch (control.abortKind()) {
            case MISMATCH -> new CollectiveMismatchException(text);
            case TIMEOUT -> new CollectiveTimeoutException(text);
            case FAILED ->
                    new RankFailedException(
                            text + "; rank " + rank + " was in " + here() + " and cannot go on");
        };
    }

    /** The error of a timeout: one story for all ranks, whoever of them began it. */
    private JcclException expire(long question, long answersBy) {
        List<@Nullable Standing> all = standings(question, answersBy, true);
        String text =
                "rank "
                        + rank
                        + " of "
                        + n
                        + " waited "
                        + options.timeout()
                        + " in "
                        + here()
                        + " for: "
                        + waitedFor()
                        + ". "
                        + "Look at what those ranks do (jstack), or raise the timeout. "
                        + table(all);
        // In one process this rank can print at once; it may end soon.
        int printer = fabric.isOneProcess() ? rank : Standing.lowest(all);
        return control.abort(rank, Control.AbortKind.TIMEOUT, printer, text)
                ? new CollectiveTimeoutException(text)
                : abortedByPeer();
    }

    /**
     * How far all ranks are. Their attendants answer, whatever their own threads do.
     *
     * @param answersBy until when they have time to; a little longer if that is over, for those who
     *     write just now
     * @param alone whether another rank's end of it would do as well
     */
    private List<@Nullable Standing> standings(long question, long answersBy, boolean alone) {
        long last = System.nanoTime() + LAST_ANSWER_NANOS;
        long deadline = answersBy - last > 0 ? answersBy : last;
        attend();
        List<@Nullable Standing> all = answers(question);
        long interrupted = 0;
        for (long now = System.nanoTime();
                isAwaited(all) && !(alone && control.aborted()) && now - deadline < 0;
                now = System.nanoTime()) {
            interrupted = Interrupts.notice(interrupted, now);
            LockSupport.parkNanos(PARK_MAX_NANOS);
            all = answers(question);
        }
        Interrupts.restore(interrupted);
        return all;
    }

    private String table(List<@Nullable Standing> all) {
        List<String> names = new ArrayList<>();
        List<String> known = new ArrayList<>();
        for (int p = 0; p < n; p++) {
            names.add(fabric.nameOf(p));
            known.add(lastCollective(p));
        }
        return Standing.table(all, names, known);
    }

    private List<@Nullable Standing> answers(long question) {
        List<@Nullable Standing> all = new ArrayList<>();
        for (int p = 0; p < n; p++) {
            // Who has closed answers no more, but may have answered another rank's question.
            String said = control.answerTo(isClosed(p) ? 1 : question, p);
            all.add(said == null ? null : Standing.read(said));
        }
        return all;
    }

    /** Whether a rank that is still there has not answered. */
    private boolean isAwaited(List<@Nullable Standing> all) {
        for (int p = 0; p < n; p++) {
            if (all.get(p) == null && !isClosed(p)) {
                return true;
            }
        }
        return false;
    }

    private boolean isClosed(int p) {
        return control.acquire(control.state(p) + Control.CLOSED) != 0;
    }

    private String lastCollective(int p) {
        long reached = reached(p);
        if (reached == 0) {
            return "";
        }
        StringBuilder b = new StringBuilder("called #").append(reached).append(' ');
        describeSlot(b, p, (int) (reached & 1));
        return b.toString();
    }

    /** The last collective that a rank has entered. */
    private long reached(int p) {
        return Math.max(
                control.acquire(control.slot(p, 0) + Control.SEQ),
                control.acquire(control.slot(p, 1) + Control.SEQ));
    }

    /** Looks whether another rank has a question, and whether there is something to print. */
    private void attend() {
        synchronized (this) {
            if (closed) {
                return;
            }
            long asked = control.asked();
            if (asked > answered) {
                answered = asked;
                control.answer(rank, asked, standing().write(Control.ANSWER_ROOM));
            }
            if (control.aborted()) {
                retireDriver();
            }
        }
        printStandings();
    }

    private synchronized void printStandings() {
        if (!closed && control.aborted() && control.abortPrinter() == rank) {
            logStandings(control.abortText());
        }
    }

    /** The ranks that this one waits for, and how far they are. */
    private String waitedFor() {
        StringBuilder b = new StringBuilder();
        boolean any = false;
        int parity = (int) (sequence & 1);
        boolean inMessages = current == null || current.op.peerToPeer();
        for (int p = 0; p < n; p++) {
            long reached = reached(p);
            boolean behind =
                    inMessages
                            ? messages.waitsFor(p)
                            : reached < sequence
                                    || control.acquire(control.state(p) + Control.TICK) < tick;
            if (p == rank || !behind) {
                continue;
            }
            b.append(any ? ", " : "").append(fabric.nameOf(p));
            any = true;
            if (reached == 0) {
                b.append(", which has called no collective yet");
            } else if (reached < sequence) {
                b.append(", whose last collective is #").append(reached).append(" ");
                describeSlot(b, p, (int) (reached & 1));
            } else {
                b.append(", which has not finished #").append(reached).append(" ");
                describeSlot(b, p, parity);
            }
        }
        if (!any) {
            b.append("messages of ranks that have entered it too");
        }
        return b.toString();
    }

    // ---- ending

    /** Remembers the first error, tells the other ranks, and returns what to throw. */
    private RuntimeException failed(RuntimeException e) {
        RuntimeException f = e;
        if (!(e instanceof JcclException)) {
            f = new JcclException("rank " + rank + " failed in " + here() + ": " + e, e);
        }
        messages.clear();
        flightFailed(f);
        if (failure == null) {
            failure = f;
            Control.AbortKind kind =
                    switch (f) {
                        case CollectiveMismatchException m -> Control.AbortKind.MISMATCH;
                        case CollectiveTimeoutException t -> Control.AbortKind.TIMEOUT;
                        default -> Control.AbortKind.FAILED;
                    };
            control.abort(rank, kind, Objects.requireNonNullElse(f.getMessage(), f.toString()));
        }
        printStandings();
        return f;
    }

    @Override
    public void abort(String reason) {
        Objects.requireNonNull(reason, "reason");
        synchronized (this) {
            if (closed) {
                return;
            }
            control.abort(rank, Control.AbortKind.FAILED, reason);
            if (failure == null) {
                failure = new RankFailedException("rank " + rank + " aborted: " + reason);
            }
        }
    }

    @Override
    public @Nullable Communicator split(int colour, int key) {
        int[] ranks = members(colour, key);
        long number = ++splits;
        Runnable barrier = () -> barrier(device().defaultStream());
        if (colour < 0) {
            barrier.run();
            barrier.run();
            return null;
        }
        int own = 0;
        while (ranks[own] != rank) {
            own++;
        }
        try {
            Fabric child = fabric.split(rank, number, colour, ranks, barrier);
            return new HostCommunicator(child, own, options).plan(child.plan());
        } catch (RuntimeException e) {
            throw failed(e);
        }
    }

    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
        }
        // Others may still have to fetch what this rank has sent; and streams their work.
        long deadline = System.nanoTime() + timeoutNanos;
        long interrupted = 0;
        for (long now = System.nanoTime();
                failure == null
                        && !control.aborted()
                        && (pending() > 0 || messages.unfetched())
                        && now < deadline;
                now = System.nanoTime()) {
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                abort("it was interrupted while it closed its communicator, with work left");
            }
            LockSupport.parkNanos(PARK_MIN_NANOS);
        }
        Interrupts.restore(interrupted);
        FlightAttendant.leave(attended);
        attend();
        flightEnded();
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        closeDriver();
        control.release(control.state(rank) + Control.CLOSED, 1);
        messages.close();
        fabric.leave(rank);
    }

    @Override
    public String toString() {
        return "Communicator[rank " + rank + " of " + n + ", " + engine() + "]";
    }
}

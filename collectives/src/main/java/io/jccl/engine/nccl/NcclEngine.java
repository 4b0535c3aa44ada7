package io.jccl.engine.nccl;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.RankFailedException;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.bootstrap.LocalPeers;
import io.jccl.bootstrap.RankInfo;
import io.jccl.device.Device;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.rendezvous.LaunchEnvironment;
import io.jccl.rendezvous.Store;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/** Makes communicators over NCCL. */
public final class NcclEngine {
    private static final AtomicInteger LOCAL = new AtomicInteger();

    private NcclEngine() {}

    /** See {@link Communicator#local(List, CommunicatorOptions)}. */
    public static List<Communicator> local(
            List<? extends Device> devices, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        List<CudaDevice> gpus = devices.stream().map(CudaDevice::of).toList();
        if (gpus.isEmpty()) {
            throw new IllegalArgumentException("devices is empty, expected one for each rank");
        }
        checkDistinct(gpus);
        CudaDevice.refuseVirtualThread();
        NcclApi nccl = NativeLibraries.nccl();
        int size = gpus.size();
        Store store = Store.inMemory();
        String name = "local-" + LOCAL.incrementAndGet();
        List<Resources> resources = new ArrayList<>();
        List<MemorySegment> slots = new ArrayList<>();
        List<Communicator> ranks = new ArrayList<>();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = uniqueId(nccl, call);
            for (CudaDevice gpu : gpus) {
                Resources r = new Resources(gpu);
                resources.add(r);
                slots.add(r.arena.allocate(ValueLayout.ADDRESS));
            }
            nccl.check(nccl.ncclGroupStart(), "ncclGroupStart", 0);
            int result = nccl_h.ncclSuccess();
            int end;
            // The group is ended whatever happens: it belongs to the thread.
            try {
                for (int r = 0; r < size && result == nccl_h.ncclSuccess(); r++) {
                    int previous = gpus.get(r).enter();
                    try {
                        Arena arena = resources.get(r).arena;
                        result = init(nccl, slots.get(r), size, id, r, options, arena);
                    } finally {
                        gpus.get(r).exit(previous);
                    }
                    if (result == nccl_h.ncclInProgress()) {
                        result = nccl_h.ncclSuccess();
                    }
                }
            } finally {
                end = nccl.ncclGroupEnd();
            }
            nccl.completed(result, "ncclCommInitRank", 0);
            nccl.completed(end, "ncclGroupEnd", 0);
            for (int r = 0; r < size; r++) {
                long comm = awaitHandle(nccl, slots.get(r), options.timeout(), "ncclCommInitRank");
                ranks.add(
                        new NcclRank(
                                nccl,
                                gpus.get(r),
                                new Membership(store, name, r, size),
                                options,
                                resources.get(r),
                                comm,
                                r,
                                size));
            }
        } finally {
            if (ranks.size() < size) {
                // All at once: the end of one may need that of another.
                ranks.forEach(rank -> rank.abort("another rank of this process failed"));
                List<Runnable> ends = new ArrayList<>();
                for (int r = ranks.size(); r < resources.size(); r++) {
                    MemorySegment slot = slots.size() > r ? slots.get(r) : MemorySegment.NULL;
                    ends.add(abandoning(nccl, resources.get(r), slot, false));
                }
                ranks.forEach(Communicator::close);
                ends.forEach(Runnable::run);
            }
        }
        return List.copyOf(ranks);
    }

    private static void checkDistinct(List<CudaDevice> gpus) {
        Set<Integer> seen = new HashSet<>();
        for (CudaDevice gpu : gpus) {
            if (!seen.add(gpu.index())
                    && !"1".equals(System.getenv("NCCL_MULTI_RANK_GPU_ENABLE"))) {
                throw new IllegalArgumentException(
                        gpu
                                + " is named twice, expected one device for each rank; NCCL 2.30 and"
                                + " newer can share one, by views of it, if"
                                + " NCCL_MULTI_RANK_GPU_ENABLE=1");
            }
        }
    }

    /** See {@link Communicator#join}. */
    public static NcclRank join(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        Objects.requireNonNull(store, "store");
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(options, "options");
        checkRank(rank, size);
        return join(new Membership(store, name, rank, size), device, options);
    }

    private static NcclRank join(Membership members, Device device, CommunicatorOptions options) {
        int rank = members.rank();
        int size = members.size();
        Duration timeout = options.timeout();
        return connect(
                members,
                device,
                options,
                (nccl, deadline, call) -> {
                    // All have what they need and fit each other: only now does NCCL begin to wait
                    // for them.
                    members.callTheRoll(facts(nccl, options), timeout);
                    if (rank == 0) {
                        MemorySegment id = uniqueId(nccl, call);
                        members.publish("id", id.toArray(ValueLayout.JAVA_BYTE));
                        return id;
                    }
                    return idFrom(members.await("id", deadline, timeout), call);
                },
                (nccl, slot, id, arena) -> init(nccl, slot, size, id, rank, options, arena));
    }

    /** See {@link Communicator#fromEnvironment(Device, CommunicatorOptions)}. */
    public static NcclRank fromEnvironment(
            Map<String, String> env, Device device, CommunicatorOptions options) {
        LaunchEnvironment launch = LaunchEnvironment.of(env);
        if (launch.meetsInStore(env)) {
            Store store = Store.fromEnvironment(options.timeout());
            return closing(
                    store,
                    () ->
                            join(
                                    new Membership(store, "world", launch.rank(), launch.size()),
                                    device,
                                    options));
        }
        // The ranks find each other as processes of the host engine do, which knows runs apart and
        // sees at once who died.
        LocalPeers meeting = LocalPeers.join(env, options);
        boolean done = false;
        try {
            Path folder = meeting.folder();
            Store store = folder == null ? Store.inMemory() : Store.folder(folder);
            NcclRank made = join(Membership.of(store, "world", meeting), device, options);
            made.whenClosed(last -> {
                if (last) {
                    meeting.deleteFolder();
                }
                meeting.close();
            });
            done = true;
            return made;
        } finally {
            if (!done) {
                meeting.close();
            }
        }
    }

    /** Makes a rank that closes the store after itself; closes it if that fails. */
    private static NcclRank closing(Store store, Supplier<NcclRank> maker) {
        boolean done = false;
        try {
            NcclRank made = maker.get();
            made.whenClosed(last -> store.close());
            done = true;
            return made;
        } finally {
            if (!done) {
                store.close();
            }
        }
    }

    /** See {@link NcclCommunicator#joinGrown}. */
    public static NcclCommunicator joinGrown(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        checkRank(rank, size);
        Membership members = new Membership(store, name, rank, size);
        return connect(
                members,
                device,
                options,
                (nccl, deadline, call) ->
                        idFrom(members.await("id", deadline, options.timeout()), call),
                (nccl, slot, id, arena) ->
                        nccl.ncclCommGrow(0, size, id, rank, slot, config(nccl, options, arena)));
    }

    private static void checkRank(int rank, int size) {
        if (rank < 0 || rank >= size) {
            throw new IllegalArgumentException(
                    "rank is " + rank + ", expected 0 to " + (size - 1) + " of " + size);
        }
    }

    private static Duration left(long deadline) {
        return Duration.ofNanos(Math.max(deadline - System.nanoTime(), 0));
    }

    private interface IdSource {
        MemorySegment id(NcclApi nccl, long deadline, Arena call);
    }

    private interface Init {
        int start(NcclApi nccl, MemorySegment slot, MemorySegment id, Arena arena);
    }

    /** Makes one rank; tells the others if that fails, so that they need not wait for it. */
    private static NcclRank connect(
            Membership members,
            Device device,
            CommunicatorOptions options,
            IdSource ids,
            Init init) {
        long deadline = System.nanoTime() + Deadline.nanos(options.timeout());
        int rank = members.rank();
        int size = members.size();
        NcclApi nccl = null;
        Resources resources = null;
        MemorySegment slot = MemorySegment.NULL;
        boolean started = false;
        boolean done = false;
        try (Arena call = Arena.ofConfined()) {
            CudaDevice gpu = CudaDevice.of(device);
            CudaDevice.refuseVirtualThread();
            nccl = NativeLibraries.nccl();
            resources = new Resources(gpu);
            slot = resources.arena.allocate(ValueLayout.ADDRESS);
            MemorySegment id = ids.id(nccl, deadline, call);
            int previous = gpu.enter();
            int result;
            try {
                result = init.start(nccl, slot, id, resources.arena);
            } finally {
                gpu.exit(previous);
            }
            nccl.completed(result, "ncclCommInitRank", 0);
            started = true;
            long comm = awaitInit(nccl, slot, members, deadline, options.timeout(), rank, size);
            NcclRank made = new NcclRank(nccl, gpu, members, options, resources, comm, rank, size);
            done = true;
            return made;
        } catch (RuntimeException e) {
            // Before NCCL begins all wait for the same ranks, and each names those that are missing
            // at its own deadline.
            if (started || !(e instanceof JcclTimeoutException)) {
                tell(members, e);
            }
            throw e;
        } finally {
            if (!done && nccl != null && resources != null) {
                abandon(nccl, resources, slot, started);
            }
        }
    }

    private static void tell(Membership members, RuntimeException error) {
        try {
            members.fail(error);
        } catch (RuntimeException ofStore) {
            error.addSuppressed(ofStore);
        }
    }

    /**
     * What ranks cannot differ in: NCCL would hang or crash, or fail with no word of the reason.
     */
    private static List<RankInfo.Fact> facts(NcclApi nccl, CommunicatorOptions options) {
        return List.of(
                new RankInfo.Fact(
                        "engines", "nccl", "start all ranks with devices of the same kind"),
                new RankInfo.Fact(
                        "versions of NCCL",
                        nccl.library().version().toString(),
                        "install one version everywhere, see jccl doctor"),
                new RankInfo.Fact(
                        "settings of NCCL",
                        options.nccl().toString(),
                        "pass the same CommunicatorOptions on all ranks"));
    }

    private static MemorySegment uniqueId(NcclApi nccl, Arena call) {
        MemorySegment id = call.allocate(nccl_h.NCCL_UNIQUE_ID_BYTES(), 8);
        nccl.check(nccl.ncclGetUniqueId(id), "ncclGetUniqueId", 0);
        return id;
    }

    private static MemorySegment idFrom(byte[] bytes, Arena call) {
        if (bytes.length != nccl_h.NCCL_UNIQUE_ID_BYTES()) {
            throw new JcclException(
                    "the store gave an id of "
                            + bytes.length
                            + " bytes, expected "
                            + nccl_h.NCCL_UNIQUE_ID_BYTES()
                            + ": another program writes to it");
        }
        return call.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
    }

    /** What NCCL is told: the user's settings, and that no call blocks. */
    static MemorySegment config(NcclApi nccl, CommunicatorOptions options, Arena arena) {
        return options.nccl()
                .with(NcclConfig.Field.BLOCKING, 0)
                .allocate(arena, nccl.library().version());
    }

    private static int init(
            NcclApi nccl,
            MemorySegment slot,
            int size,
            MemorySegment id,
            int rank,
            CommunicatorOptions options,
            Arena arena) {
        return nccl.supports("ncclCommInitRankConfig")
                ? nccl.ncclCommInitRankConfig(slot, size, id, rank, config(nccl, options, arena))
                : nccl.ncclCommInitRank(slot, size, id, rank);
    }

    /** Waits for a handle and for the communicator behind it to be ready. */
    static long awaitHandle(NcclApi nccl, MemorySegment slot, Duration timeout, String operation) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        long comm = slot.get(ValueLayout.JAVA_LONG, 0);
        while (comm == 0 && System.nanoTime() < deadline) {
            LockSupport.parkNanos(100_000);
            comm = slot.get(ValueLayout.JAVA_LONG, 0);
        }
        int state =
                comm == 0
                        ? nccl_h.ncclInProgress()
                        : Pending.await(nccl, comm, left(deadline), () -> false);
        if (state == nccl_h.ncclInProgress()) {
            throw new CollectiveTimeoutException(
                    operation + " is not complete after " + timeout + ": a rank is missing");
        }
        if (state != nccl_h.ncclSuccess()) {
            throw NcclException.of(nccl, state, operation, comm);
        }
        return comm;
    }

    /** The same, while other ranks may fail. */
    private static long awaitInit(
            NcclApi nccl,
            MemorySegment slot,
            Membership members,
            long deadline,
            Duration timeout,
            int rank,
            int size) {
        String operation =
                "ncclCommInitRank on rank "
                        + rank
                        + " of "
                        + size
                        + " of communicator '"
                        + members.name()
                        + "'";
        while (true) {
            Duration slice =
                    Duration.ofNanos(
                            Math.min(200_000_000, Math.max(deadline - System.nanoTime(), 0)));
            try {
                return awaitHandle(nccl, slot, slice, operation);
            } catch (NcclException e) {
                // That another rank failed is all that NCCL knows of it: which and why is told
                // soon.
                long since = System.nanoTime();
                while (NcclCodes.mayBeAnothers(e.result())
                        && System.nanoTime() - since < Failures.BLAME_NANOS) {
                    throwIfBroken(members, operation);
                    LockSupport.parkNanos(10_000_000);
                }
                throw e;
            } catch (JcclTimeoutException e) {
                throwIfBroken(members, operation);
                if (System.nanoTime() >= deadline) {
                    throw new CollectiveTimeoutException(
                            operation
                                    + " is not complete after "
                                    + timeout
                                    + ", though all ranks came: connections cannot be made; check"
                                    + " NCCL_SOCKET_IFNAME and firewalls, or set NCCL_DEBUG=INFO");
                }
            }
        }
    }

    private static void throwIfBroken(Membership members, String operation) {
        String broken = members.broken();
        if (broken != null) {
            throw new RankFailedException(operation + " cannot succeed: " + broken);
        }
    }

    /**
     * Ends a communicator that was never handed out, and frees what was to be its own. NCCL may
     * hang in that, so it is not awaited for ever.
     *
     * @param started whether NCCL may still write to the slot
     */
    static void abandon(NcclApi nccl, Resources resources, MemorySegment slot, boolean started) {
        abandoning(nccl, resources, slot, started).run();
    }

    /** Begins with that; the result waits for it and frees. */
    private static Runnable abandoning(
            NcclApi nccl, Resources resources, MemorySegment slot, boolean started) {
        long comm = slot.address() == 0 ? 0 : slot.get(ValueLayout.JAVA_LONG, 0);
        if (comm == 0 || !nccl.supports("ncclCommAbort")) {
            return () -> resources.close(!started);
        }
        CountDownLatch ended = new CountDownLatch(1);
        Thread.ofPlatform()
                .daemon()
                .name("jccl-abandon")
                .start(() -> {
                    nccl.ncclCommAbort(comm);
                    ended.countDown();
                });
        return () -> {
            boolean done = false;
            try {
                done = ended.await(NcclHandle.ABORT_WAIT.toNanos(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            resources.close(done);
        };
    }
}

package io.jccl.engine.nccl;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
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
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Creates communicators over NCCL. */
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
        NcclTask init = null;
        // Shared, and not freed if NCCL does not return: the helper thread reads it.
        MemorySegment id = uniqueId(nccl, Arena.ofAuto());
        try {
            List<@Nullable MemorySegment> configs = new ArrayList<>();
            for (CudaDevice gpu : gpus) {
                Resources r = new Resources(gpu);
                resources.add(r);
                slots.add(r.arena.allocate(ValueLayout.ADDRESS));
                configs.add(NcclInit.config(nccl, options, r.arena));
            }
            gpus.getFirst().claim();
            init =
                    new NcclTask(
                            nccl,
                            gpus.getFirst(),
                            "init",
                            () -> initAll(nccl, gpus, slots, id, configs),
                            false,
                            slots.stream().map(NcclEngine::handleIn).toArray(LongSupplier[]::new));
            NcclInit.await(nccl, init, options.timeout(), "ncclCommInitRank");
            for (int r = 0; r < size; r++) {
                ranks.add(
                        new NcclRank(
                                nccl,
                                gpus.get(r),
                                new Membership(store, name, r, size),
                                options,
                                resources.get(r),
                                slots.get(r).get(ValueLayout.JAVA_LONG, 0),
                                !init.wasInProgress(),
                                r,
                                size));
            }
        } finally {
            if (ranks.size() < size) {
                // All at once, since aborting one may require that another is aborted.
                ranks.forEach(rank -> rank.abort("another rank of this process failed"));
                List<Runnable> ends = new ArrayList<>();
                for (int r = ranks.size(); r < resources.size(); r++) {
                    MemorySegment slot = slots.size() > r ? slots.get(r) : MemorySegment.NULL;
                    ends.add(
                            NcclInit.abandoning(
                                    nccl, gpus.get(r), resources.get(r), slot, init, () -> true));
                }
                ranks.forEach(Communicator::close);
                ends.forEach(Runnable::run);
            }
        }
        return List.copyOf(ranks);
    }

    private static int initAll(
            NcclApi nccl,
            List<CudaDevice> gpus,
            List<MemorySegment> slots,
            MemorySegment id,
            List<@Nullable MemorySegment> configs) {
        int result = nccl.ncclGroupStart();
        int end;
        // The group is always ended, since it belongs to the thread.
        try {
            for (int r = 0; r < gpus.size() && !NcclCodes.isError(result); r++) {
                gpus.get(r).enter();
                result = NcclInit.call(nccl, slots.get(r), gpus.size(), id, r, configs.get(r));
            }
        } finally {
            end = nccl.ncclGroupEnd();
        }
        return NcclCodes.isError(result) ? result : end;
    }

    private static LongSupplier handleIn(MemorySegment slot) {
        return () -> slot.get(ValueLayout.JAVA_LONG, 0);
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
        return join(new Membership(store, name, rank, size), device, options, List.of());
    }

    /**
     * Joins the ranks of a membership.
     *
     * @param more what must be identical in addition to versions and settings
     */
    static NcclRank join(
            Membership members,
            Device device,
            CommunicatorOptions options,
            List<RankInfo.Fact> more) {
        int rank = members.rank();
        int size = members.size();
        Duration timeout = options.timeout();
        members.beginHandshake();
        return connect(
                members,
                device,
                options,
                (nccl, deadline, call) -> {
                    // NCCL waits for others only after all ranks were found ready and compatible.
                    List<RankInfo.Fact> facts = new ArrayList<>(facts(nccl, options));
                    facts.addAll(more);
                    members.callTheRoll(facts, timeout);
                    if (rank == 0) {
                        MemorySegment id = uniqueId(nccl, call);
                        members.publish("id", id.toArray(ValueLayout.JAVA_BYTE));
                        return id;
                    }
                    return idFrom(members.await("id", deadline, timeout), call);
                },
                (nccl, slot, id, config) -> NcclInit.call(nccl, slot, size, id, rank, config),
                "ncclCommInitRank",
                "though all ranks came: connections cannot be made");
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
                                    options,
                                    List.of()));
        }
        // The ranks join like processes of the host engine, which distinguishes runs and notices
        // at once when a process ends.
        LocalPeers meeting = LocalPeers.join(env, options);
        boolean done = false;
        try {
            Path folder = meeting.folder();
            Store store = folder == null ? Store.inMemory() : Store.folder(folder);
            NcclRank made =
                    join(Membership.of(store, "world", meeting), device, options, List.of());
            made.afterClose(new AfterClose(() -> leave(meeting, store)));
            done = true;
            return made;
        } finally {
            if (!done) {
                meeting.close();
            }
        }
    }

    /** With the prefix that {@code OwnFolder} expects of all files of a store. */
    private static String closedKey(int rank) {
        return "world/closed-" + rank;
    }

    /** The last process that needs the store deletes its folder. */
    private static void leave(LocalPeers meeting, Store store) {
        try {
            store.set(closedKey(meeting.rank()), new byte[0]);
            if (IntStream.range(0, meeting.size())
                    .allMatch(p -> store.get(closedKey(p)) != null || !meeting.isAlive(p))) {
                meeting.deleteFolder();
            }
        } catch (RuntimeException e) {
            // Another process has deleted it.
        } finally {
            meeting.close();
        }
    }

    /** Creates a rank that closes the store when it is closed; closes the store on failure. */
    private static NcclRank closing(Store store, Supplier<NcclRank> maker) {
        boolean done = false;
        try {
            NcclRank made = maker.get();
            made.afterClose(new AfterClose(store::close));
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
        Membership.checkSize(size);
        Membership members = new Membership(store, name, rank, size);
        return connect(
                members,
                device,
                options,
                (nccl, deadline, call) ->
                        idFrom(members.await("id", deadline, options.timeout()), call),
                (nccl, slot, id, config) ->
                        nccl.ncclCommGrow(0, size, id, rank, slot, Objects.requireNonNull(config)),
                "ncclCommGrow",
                "though rank 0 came: another rank has not called grow or joinGrown, or connections"
                        + " cannot be made");
    }

    private static void checkRank(int rank, int size) {
        if (rank < 0 || rank >= size) {
            throw new IllegalArgumentException(
                    "rank is " + rank + ", expected 0 to " + (size - 1) + " of " + size);
        }
    }

    private interface IdSource {
        MemorySegment id(NcclApi nccl, long deadline, Arena call);
    }

    private interface Init {
        int start(
                NcclApi nccl, MemorySegment slot, MemorySegment id, @Nullable MemorySegment config);
    }

    /** Creates one rank; notifies the others on failure, so that they do not wait for it. */
    private static NcclRank connect(
            Membership members,
            Device device,
            CommunicatorOptions options,
            IdSource ids,
            Init init,
            String function,
            String cause) {
        long deadline = System.nanoTime() + Deadline.nanos(options.timeout());
        int rank = members.rank();
        int size = members.size();
        NcclApi nccl = null;
        Resources resources = null;
        MemorySegment slot = MemorySegment.NULL;
        NcclTask task = null;
        boolean done = false;
        CudaDevice gpu = CudaDevice.of(device);
        try {
            CudaDevice.refuseVirtualThread();
            nccl = NativeLibraries.nccl();
            gpu.claim();
            resources = new Resources(gpu);
            slot = resources.arena.allocate(ValueLayout.ADDRESS);
            MemorySegment id = ids.id(nccl, deadline, resources.arena);
            task =
                    start(
                            nccl,
                            gpu,
                            init,
                            slot,
                            id,
                            NcclInit.config(nccl, options, resources.arena));
            NcclInit.await(nccl, task, members, deadline, options.timeout(), function, cause);
            NcclRank made =
                    new NcclRank(
                            nccl,
                            gpu,
                            members,
                            options,
                            resources,
                            slot.get(ValueLayout.JAVA_LONG, 0),
                            !task.wasInProgress(),
                            rank,
                            size);
            done = true;
            return made;
        } catch (RuntimeException e) {
            // Until NCCL starts, all wait for the same ranks, and each names the missing ones at
            // its own
            // deadline.
            if (task != null || !(e instanceof JcclTimeoutException)) {
                tell(members, e);
            }
            throw e;
        } finally {
            if (!done && nccl != null && resources != null) {
                NcclInit.abandoning(nccl, gpu, resources, slot, task, () -> true).run();
            }
        }
    }

    private static NcclTask start(
            NcclApi nccl,
            CudaDevice gpu,
            Init init,
            MemorySegment slot,
            MemorySegment id,
            @Nullable MemorySegment config) {
        return new NcclTask(
                nccl, gpu, "init", () -> init.start(nccl, slot, id, config), false, handleIn(slot));
    }

    private static void tell(Membership members, RuntimeException error) {
        try {
            members.fail(error);
        } catch (RuntimeException ofStore) {
            error.addSuppressed(ofStore);
        }
    }

    /**
     * What must be identical on all ranks: otherwise NCCL would hang, crash, or fail without a
     * reason.
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
                    "the store gave an id of %s bytes, expected %s: another program writes to it"
                            .formatted(bytes.length, nccl_h.NCCL_UNIQUE_ID_BYTES()));
        }
        return call.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
    }
}

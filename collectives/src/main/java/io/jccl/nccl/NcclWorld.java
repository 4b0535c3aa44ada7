package io.jccl.nccl;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.bindings.JcclException;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.cuda.CudaDevice;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.host.HostWorld;
import io.jccl.rendezvous.Store;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
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

/** Makes communicators over NCCL. */
public final class NcclWorld {
    private static final AtomicInteger LOCAL = new AtomicInteger();
    private static final int FOLDER_NAME_BYTES = 4096;

    private NcclWorld() {}

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
        List<NcclRank.Resources> resources = new ArrayList<>();
        List<MemorySegment> slots = new ArrayList<>();
        List<Communicator> ranks = new ArrayList<>();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = uniqueId(nccl, call);
            for (CudaDevice gpu : gpus) {
                NcclRank.Resources r = new NcclRank.Resources(gpu);
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
                                new Members(store, name, r, size),
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
        CudaDevice gpu = CudaDevice.of(device);
        CudaDevice.refuseVirtualThread();
        NcclApi nccl = NativeLibraries.nccl();
        Members members = new Members(store, name, rank, size);
        long deadline = System.nanoTime() + options.timeout().toNanos();
        checkVersions(
                name,
                members.exchange(
                        "version",
                        nccl.library().version().toString(),
                        deadline,
                        options.timeout()));
        return connect(
                nccl,
                gpu,
                members,
                options,
                rank,
                size,
                deadline,
                call -> {
                    // All are here and fit each other: only now does NCCL begin to wait for them.
                    members.exchange("ready", "", deadline, options.timeout());
                    if (rank == 0) {
                        MemorySegment id = uniqueId(nccl, call);
                        members.publish("id", id.toArray(ValueLayout.JAVA_BYTE));
                        return id;
                    }
                    return idFrom(members.await("id", deadline, options.timeout()), call);
                },
                (slot, id, arena) -> init(nccl, slot, size, id, rank, options, arena));
    }

    /** See {@link Communicator#fromEnvironment(Device, CommunicatorOptions)}. */
    public static NcclRank fromEnvironment(
            Map<String, String> env, Device device, CommunicatorOptions options) {
        // The ranks find each other as processes of the host engine do, which knows runs apart and
        // notices who died; rank 0 then names a folder that only this run has.
        try (Communicator host = HostWorld.fromEnvironment(env, options);
                Buffer name = host.device().allocate(DataType.UINT8, FOLDER_NAME_BYTES)) {
            Path folder = host.rank() == 0 ? newFolder() : null;
            if (folder != null) {
                byte[] bytes = folder.toString().getBytes(StandardCharsets.UTF_8);
                MemorySegment.copy(
                        bytes, 0, name.asSegment(), ValueLayout.JAVA_BYTE, 0, bytes.length);
            }
            host.broadcast(name, 0, host.device().defaultStream());
            Path shared = Path.of(name.asSegment().getString(0));
            Store store = Store.folder(shared);
            NcclRank made = join(store, "world", host.rank(), host.size(), device, options);
            made.whenLast(() -> delete(shared));
            return made;
        }
    }

    private static Path newFolder() {
        try {
            Path folder = Files.createTempDirectory("jccl-store-");
            if (folder.toString().length() >= FOLDER_NAME_BYTES / 4) {
                throw new JcclException(
                        "the path "
                                + folder
                                + " is too long: set -Djava.io.tmpdir to a shorter one");
            }
            return folder;
        } catch (IOException e) {
            throw new JcclException("no folder for the ranks to meet in can be made: " + e, e);
        }
    }

    private static void delete(Path folder) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
            for (Path f : files) {
                Files.deleteIfExists(f);
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            // Another rank is deleting it too.
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
        CudaDevice gpu = CudaDevice.of(device);
        CudaDevice.refuseVirtualThread();
        NcclApi nccl = NativeLibraries.nccl();
        Members members = new Members(store, name, rank, size);
        long deadline = System.nanoTime() + options.timeout().toNanos();
        return connect(
                nccl,
                gpu,
                members,
                options,
                rank,
                size,
                deadline,
                call -> idFrom(members.await("id", deadline, options.timeout()), call),
                (slot, id, arena) ->
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
        MemorySegment id(Arena call);
    }

    private interface Init {
        int start(MemorySegment slot, MemorySegment id, Arena arena);
    }

    private static NcclRank connect(
            NcclApi nccl,
            CudaDevice gpu,
            Members members,
            CommunicatorOptions options,
            int rank,
            int size,
            long deadline,
            IdSource ids,
            Init init) {
        NcclRank.Resources resources = null;
        MemorySegment slot = MemorySegment.NULL;
        boolean started = false;
        boolean done = false;
        try (Arena call = Arena.ofConfined()) {
            resources = new NcclRank.Resources(gpu);
            slot = resources.arena.allocate(ValueLayout.ADDRESS);
            MemorySegment id = ids.id(call);
            int previous = gpu.enter();
            int result;
            try {
                result = init.start(slot, id, resources.arena);
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
            // Whatever it is, the others need not wait for this rank.
            try {
                members.fail(String.valueOf(e.getMessage()));
            } catch (RuntimeException ofStore) {
                e.addSuppressed(ofStore);
            }
            throw e;
        } finally {
            if (!done && resources != null) {
                abandon(nccl, resources, slot, started);
            }
        }
    }

    private static void checkVersions(String name, List<String> versions) {
        if (new HashSet<>(versions).size() > 1) {
            StringBuilder text =
                    new StringBuilder("the ranks of communicator '")
                            .append(name)
                            .append("' have different versions of NCCL, which cannot talk: ");
            for (int r = 0; r < versions.size(); r++) {
                text.append(r == 0 ? "rank " : ", rank ")
                        .append(r)
                        .append(' ')
                        .append(versions.get(r));
            }
            throw new JcclException(
                    text.append("; install one version everywhere, see jccl doctor").toString());
        }
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
        long deadline = System.nanoTime() + timeout.toNanos();
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
            Members members,
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
                // NCCL can only say that another rank is gone, which may have told why.
                String failed = members.failure();
                if (failed != null) {
                    throw new JcclException(operation + " cannot succeed: " + failed, e);
                }
                throw e;
            } catch (CollectiveTimeoutException e) {
                String failed = members.failure();
                if (failed != null) {
                    throw new JcclException(operation + " cannot succeed: " + failed, e);
                }
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

    /**
     * Ends a communicator that was never handed out, and frees what was to be its own. NCCL may
     * hang in that, so it is not awaited for ever.
     *
     * @param started whether NCCL may still write to the slot
     */
    static void abandon(
            NcclApi nccl, NcclRank.Resources resources, MemorySegment slot, boolean started) {
        abandoning(nccl, resources, slot, started).run();
    }

    /** Begins with that; the result waits for it and frees. */
    private static Runnable abandoning(
            NcclApi nccl, NcclRank.Resources resources, MemorySegment slot, boolean started) {
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
                done = ended.await(NcclRank.ABORT_WAIT.toNanos(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            resources.close(done);
        };
    }
}

package io.jccl.engine.nccl;

import io.jccl.NcclCommunicator;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.ncclWaitSignalDesc_t;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Registered memory, windows, and one-sided operations on other ranks' windows.
 *
 * <p><b>Threads:</b> only the one that issues the rank's operations.
 */
final class OneSided {
    private static final long ALIGNMENT = 4096;

    private final NcclRank rank;
    private final NcclApi nccl;
    private final CudaDevice device;
    private final Membership members;
    private final InFlightOps issued;

    /** Receives handles from NCCL. */
    private final Arena arena;

    /** Those that are open. */
    private final List<Registered> windows = new ArrayList<>();

    OneSided(
            NcclRank rank,
            NcclApi nccl,
            CudaDevice device,
            Membership members,
            InFlightOps issued,
            Arena arena) {
        this.rank = rank;
        this.nccl = nccl;
        this.device = device;
        this.members = members;
        this.issued = issued;
        this.arena = arena;
    }

    /** A registration with this communicator, until it is closed. */
    private final class Registered implements NcclCommunicator.Window {
        final long handle;
        final boolean window;

        /** Start of this rank's memory. */
        final long address;

        /**
         * Size of every rank's window in bytes as far as this rank knows, {@code Long.MAX_VALUE} if
         * it is not symmetric; 0 if it is not a window.
         */
        final long bytes;

        final AtomicBoolean open = new AtomicBoolean(true);

        Registered(long handle, long address, long bytes) {
            this.handle = handle;
            this.window = bytes > 0;
            this.address = address;
            this.bytes = bytes;
        }

        boolean isSymmetric() {
            return bytes < Long.MAX_VALUE;
        }

        /** Whether a buffer lies in this rank's part of a symmetric window. */
        boolean holds(Buffer source) {
            long from = source.address() - address;
            return isSymmetric() && from >= 0 && from <= bytes - source.byteSize();
        }

        OneSided owner() {
            return OneSided.this;
        }

        @Override
        public void close() {
            // The end of a communicator, regular or not, ends all its registrations.
            if (!open.compareAndSet(true, false) || rank.isOver()) {
                return;
            }
            if (window) {
                windows.remove(this);
                rank.call(
                        "ncclCommWindowDeregister",
                        () -> nccl.ncclCommWindowDeregister(rank.comm(), handle));
            } else {
                rank.call("ncclCommDeregister", () -> nccl.ncclCommDeregister(rank.comm(), handle));
            }
        }
    }

    NcclCommunicator.Registration register(Buffer buffer) {
        rank.checkUsable();
        rank.checkBuffer(buffer, "buffer");
        MemorySegment slot = arena.allocate(ValueLayout.ADDRESS);
        rank.call(
                "ncclCommRegister",
                () ->
                        nccl.ncclCommRegister(
                                rank.comm(), buffer.address(), buffer.byteSize(), slot));
        long handle = slot.get(ValueLayout.JAVA_LONG, 0);
        if (handle == 0) {
            throw new UnsupportedOperationException(
                    ("NCCL does not register memory for communicator '%s': NCCL_LOCAL_REGISTER=0"
                                    + " is in force; unset it, or do not register%s")
                            .formatted(members.name(), Settings.inForce()));
        }
        return new Registered(handle, buffer.address(), 0);
    }

    NcclCommunicator.Window window(Buffer buffer, boolean symmetric) {
        rank.checkUsable();
        rank.checkBuffer(buffer, "buffer");
        if (buffer.address() % ALIGNMENT != 0 || buffer.byteSize() % ALIGNMENT != 0) {
            throw new IllegalArgumentException(
                    ("a window must start at and span multiples of %s bytes, but %s is %s bytes at"
                                    + " 0x%s")
                            .formatted(
                                    ALIGNMENT,
                                    buffer,
                                    buffer.byteSize(),
                                    Long.toHexString(buffer.address())));
        }
        if (((CudaBuffer) buffer).isOfRuntime()) {
            throw new IllegalArgumentException(
                    ("a window needs memory that other ranks can map, but %s is memory of"
                                    + " cudaMalloc or cudaMallocAsync; allocate it with"
                                    + " Cuda.allocateForNccl")
                            .formatted(buffer));
        }
        MemorySegment slot = arena.allocate(ValueLayout.ADDRESS);
        int flags = symmetric ? nccl_h.NCCL_WIN_COLL_SYMMETRIC() : nccl_h.NCCL_WIN_DEFAULT();
        rank.call(
                "ncclCommWindowRegister",
                () ->
                        nccl.ncclCommWindowRegister(
                                rank.comm(), buffer.address(), buffer.byteSize(), slot, flags));
        long handle = slot.get(ValueLayout.JAVA_LONG, 0);
        if (handle == 0) {
            throw new UnsupportedOperationException(
                    ("NCCL does not create windows for communicator '%s': that needs symmetric"
                                    + " memory, which this platform lacks or NCCL_CUMEM_ENABLE=0"
                                    + " or NCCL_WIN_ENABLE=0 turns off; use operations without"
                                    + " windows%s")
                            .formatted(members.name(), Settings.inForce()));
        }
        Registered made =
                new Registered(
                        handle, buffer.address(), symmetric ? buffer.byteSize() : Long.MAX_VALUE);
        windows.add(made);
        return made;
    }

    private Registered own(NcclCommunicator.Window window) {
        Objects.requireNonNull(window, "window");
        if (window instanceof Registered r && r.owner() == this && r.window && r.open.get()) {
            return r;
        }
        throw new IllegalArgumentException(
                "the window is closed, or of another communicator than '" + members.name() + "'");
    }

    /** NCCL refuses such a source, on this rank alone, while the peer waits for the signal. */
    private void checkSource(Buffer source) {
        for (int i = 0; i < windows.size(); i++) {
            if (windows.get(i).holds(source)) {
                return;
            }
        }
        throw new IllegalArgumentException(
                ("source %s lies in no symmetric window of communicator '%s' on this rank; pass a"
                                + " slice of a buffer that window(buffer, true) registered")
                        .formatted(source, members.name()));
    }

    void putSignal(
            Buffer source,
            int peer,
            NcclCommunicator.Window window,
            long offsetBytes,
            Stream stream) {
        rank.checkUsable();
        Objects.requireNonNull(source, "source");
        rank.checkBuffer(source, "source");
        rank.checkPeer(peer);
        Registered win = own(window);
        if (offsetBytes < 0 || offsetBytes > win.bytes - source.byteSize()) {
            throw new IllegalArgumentException(
                    "offsetBytes is %s, but source's %s bytes must lie within the peer's window%s"
                            .formatted(
                                    offsetBytes,
                                    source.byteSize(),
                                    win.isSymmetric() ? " of " + win.bytes + " bytes" : ""));
        }
        checkSource(source);
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        rank.enqueue(
                "ncclPutSignal",
                s,
                () -> {
                    issued.note("putSignal", peer, s);
                    return nccl.ncclPutSignal(
                            source.address(),
                            source.count(),
                            NcclCodes.of(source.dataType()),
                            peer,
                            win.handle,
                            offsetBytes,
                            0,
                            0,
                            0,
                            rank.comm(),
                            h);
                });
    }

    void signal(int peer, Stream stream) {
        rank.checkUsable();
        rank.checkPeer(peer);
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        rank.enqueue(
                "ncclSignal",
                s,
                () -> {
                    issued.note("signal", peer, s);
                    return nccl.ncclSignal(peer, 0, 0, 0, rank.comm(), h);
                });
    }

    void waitSignal(int peer, int count, Stream stream) {
        rank.checkUsable();
        rank.checkPeer(peer);
        if (count < 1) {
            throw new IllegalArgumentException("count is " + count + ", expected 1 or more");
        }
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment what = call.allocate(ncclWaitSignalDesc_t.layout());
            ncclWaitSignalDesc_t.opCnt(what, count);
            ncclWaitSignalDesc_t.peer(what, peer);
            rank.enqueue(
                    "ncclWaitSignal",
                    s,
                    () -> {
                        issued.note("waitSignal", peer, s);
                        return nccl.ncclWaitSignal(1, what, rank.comm(), h);
                    });
        }
    }
}

package io.jccl.engine.nccl;

import io.jccl.CommunicatorOptions;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Makes communicators from one that there is.
 *
 * <p><b>Threads:</b> the one that issues the rank's operations.
 */
final class ChildCommunicators {
    private final NcclRank rank;
    private final NcclApi nccl;
    private final CudaDevice device;
    private final Membership members;
    private final CommunicatorOptions options;

    /** How many were made by split and shrink; part of their names. */
    private int splits;

    ChildCommunicators(
            NcclRank rank,
            NcclApi nccl,
            CudaDevice device,
            Membership members,
            CommunicatorOptions options) {
        this.rank = rank;
        this.nccl = nccl;
        this.device = device;
        this.members = members;
        this.options = options;
    }

    @Nullable NcclRank split(int colour, int key) {
        rank.checkUsable();
        int number = ++splits;
        int c = colour < 0 ? nccl_h.NCCL_SPLIT_NOCOLOR() : colour;
        return derive(
                "ncclCommSplit",
                colour >= 0,
                (slot, config) -> nccl.ncclCommSplit(rank.comm(), c, key, slot, config),
                (of, size) -> members.child("split" + number + "." + colour, of, size));
    }

    NcclRank shrink(List<Integer> excluded, boolean abort) {
        rank.checkUsable();
        for (int r : excluded) {
            if (r < 0 || r >= rank.size() || r == rank.rank()) {
                throw new IllegalArgumentException(
                        "excluded names rank "
                                + r
                                + ", expected others than "
                                + rank.rank()
                                + ", 0 to "
                                + (rank.size() - 1));
            }
        }
        int number = ++splits;
        int flags = abort ? nccl_h.NCCL_SHRINK_ABORT() : nccl_h.NCCL_SHRINK_DEFAULT();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment list =
                    call.allocateFrom(
                            ValueLayout.JAVA_INT,
                            excluded.stream().mapToInt(Integer::intValue).toArray());
            return Objects.requireNonNull(
                    derive(
                            "ncclCommShrink",
                            true,
                            (slot, config) ->
                                    nccl.ncclCommShrink(
                                            rank.comm(),
                                            list,
                                            excluded.size(),
                                            slot,
                                            config,
                                            flags),
                            (of, size) -> members.child("shrink" + number, of, size)));
        }
    }

    NcclRank grow(String name, int size) {
        rank.checkUsable();
        if (size <= rank.size()) {
            throw new IllegalArgumentException(
                    "size is "
                            + size
                            + ", expected more than "
                            + rank.size()
                            + ", the ranks there are");
        }
        Membership grown = members.other(name, size);
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = call.allocate(nccl_h.NCCL_UNIQUE_ID_BYTES());
            if (rank.rank() == 0) {
                rank.call("ncclCommGetUniqueId", () -> nccl.ncclCommGetUniqueId(rank.comm(), id));
                grown.publish("id", id.toArray(ValueLayout.JAVA_BYTE));
            }
            MemorySegment mine = rank.rank() == 0 ? id : MemorySegment.NULL;
            return Objects.requireNonNull(
                    derive(
                            "ncclCommGrow",
                            true,
                            (slot, config) ->
                                    nccl.ncclCommGrow(rank.comm(), size, mine, -1, slot, config),
                            (of, total) -> grown));
        }
    }

    private interface Maker {
        int make(MemorySegment slot, MemorySegment config);
    }

    private interface Naming {
        Membership name(int rank, int size);
    }

    private @Nullable NcclRank derive(
            String operation, boolean member, Maker maker, Naming naming) {
        Resources resources = new Resources(device);
        MemorySegment slot = MemorySegment.NULL;
        boolean started = false;
        boolean done = false;
        try {
            MemorySegment out = resources.arena.allocate(ValueLayout.ADDRESS);
            slot = out;
            MemorySegment config = NcclEngine.config(nccl, options, resources.arena);
            started = true;
            rank.call(operation, () -> maker.make(out, config));
            if (!member) {
                started = false;
                return null;
            }
            long made =
                    NcclEngine.awaitHandle(
                            nccl, slot, options.timeout(), rank.failures().describe(operation));
            MemorySegment number = CudaRuntime.slot();
            nccl.check(nccl.ncclCommUserRank(made, number), "ncclCommUserRank", made);
            int of = number.get(ValueLayout.JAVA_INT, 0);
            nccl.check(nccl.ncclCommCount(made, number), "ncclCommCount", made);
            int size = number.get(ValueLayout.JAVA_INT, 0);
            NcclRank child =
                    new NcclRank(
                            nccl,
                            device,
                            naming.name(of, size),
                            options,
                            resources,
                            made,
                            of,
                            size);
            done = true;
            return child;
        } catch (NcclException | UnsupportedOperationException e) {
            // It has answered: nothing of it is under way.
            started = false;
            throw e;
        } finally {
            if (!done) {
                NcclEngine.abandon(nccl, resources, slot, started);
            }
        }
    }
}

package io.jccl.engine.nccl;

import io.jccl.CommunicatorOptions;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.bootstrap.RankInfo;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.engine.Descendants;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Creates communicators from an existing one.
 *
 * <p><b>Threads:</b> only the one that issues the rank's operations.
 */
final class ChildCommunicators {
    private static final int MOST_OF_A_NAME = 16;

    private final NcclRank rank;
    private final NcclApi nccl;
    private final CudaDevice device;
    private final Membership members;
    private final CommunicatorOptions options;

    /** Number of calls of split so far; part of the new communicators' names. */
    private int splits;

    /**
     * Number of calls of shrink by the ranks left out, which do not count the call; part of names
     * as well.
     */
    private final Map<String, Integer> shrinks = new HashMap<>();

    /** Names passed to grow. */
    private final Set<String> used = new HashSet<>();

    /** Number of attempts to continue without some ranks; part of names as well. */
    private int attempts;

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
        rank.checkResident();
        int number = ++splits;
        int c = colour < 0 ? nccl_h.NCCL_SPLIT_NOCOLOR() : colour;
        return derive(
                "ncclCommSplit",
                colour >= 0,
                (slot, config) -> nccl.ncclCommSplit(rank.comm(), c, key, slot, config),
                (of, size) -> members.child("split" + number + "." + colour, of, size));
    }

    NcclRank shrink(List<Integer> excluded, boolean abort) {
        if (!abort) {
            rank.checkResident();
        }
        rank.checkOpen();
        for (int r : excluded) {
            if (r < 0 || r >= rank.size() || r == rank.rank()) {
                throw new IllegalArgumentException(
                        "excluded names rank %s, expected others than %s, 0 to %s"
                                .formatted(r, rank.rank(), rank.size() - 1));
            }
        }
        if (abort) {
            return joinWithout(new TreeSet<>(excluded));
        }
        if (excluded.isEmpty()) {
            // NCCL refuses that: init.cc:3086 of 2.30.7.
            return Objects.requireNonNull(split(0, rank.rank()));
        }
        // NCCL counts a rank that is named twice twice, but skips it once: init.cc:1815 of 2.30.7.
        int[] distinct =
                excluded.stream().mapToInt(Integer::intValue).sorted().distinct().toArray();
        String left = name(distinct);
        int number = shrinks.merge(left, 1, Integer::sum);
        // Not freed while the helper thread may read it.
        MemorySegment list = Arena.ofAuto().allocateFrom(ValueLayout.JAVA_INT, distinct);
        return Objects.requireNonNull(
                derive(
                        "ncclCommShrink",
                        true,
                        (slot, config) ->
                                nccl.ncclCommShrink(
                                        rank.comm(),
                                        list,
                                        distinct.length,
                                        slot,
                                        config,
                                        nccl_h.NCCL_SHRINK_DEFAULT()),
                        (of, size) -> members.child("shrink" + number + "." + left, of, size)));
    }

    /** Short, since names are parts of keys. */
    private static String name(int[] ranks) {
        String text =
                IntStream.of(ranks).mapToObj(Integer::toString).collect(Collectors.joining("-"));
        return text.length() < MOST_OF_A_NAME
                ? text
                : "x" + Integer.toHexString(Arrays.hashCode(ranks));
    }

    /**
     * Creates a communicator of the remaining ranks, which join by the store.
     *
     * <p>ncclCommShrink with NCCL_SHRINK_ABORT is not used: on a rank whose connection to the lost
     * rank broke, it returns the parent's error; it succeeds only on ranks with no broken
     * connection (NCCL 2.30.7, init.cc:3095). The remaining ranks do not know which of the two
     * applies to the others, but all must take the same path.
     */
    private NcclRank joinWithout(SortedSet<Integer> excluded) {
        rank.abort("shrink leaves out rank(s) " + excluded);
        var unused = rank.handle().awaitEnd();
        // The caller knows about the failure, so it must not surface on streams that the new
        // communicator uses.
        rank.issued().detach();
        List<Integer> remaining =
                IntStream.range(0, rank.size()).boxed().filter(r -> !excluded.contains(r)).toList();
        Membership rest = members.without("without" + ++attempts, remaining);
        NcclRank made =
                NcclEngine.join(
                        rest,
                        device,
                        options,
                        List.of(
                                new RankInfo.Fact(
                                        "ranks to leave out",
                                        excluded.toString(),
                                        "pass the same list to shrink on all that remain")));
        try {
            // NCCL may have failed on some of the ranks only.
            rest.confirm(options.timeout());
        } catch (RuntimeException | Error e) {
            made.abort(String.valueOf(e.getMessage()));
            made.close();
            throw e;
        }
        made.afterClose(rank.afterClose());
        rank.afterClose(null);
        return Descendants.add(rank, made);
    }

    NcclRank grow(String name, int size) {
        rank.checkUsable();
        if (size <= rank.size()) {
            throw new IllegalArgumentException(
                    "size is %s, expected more than %s, the current number of ranks"
                            .formatted(size, rank.size()));
        }
        Membership.checkSize(size);
        if (name.equals(members.name()) || !used.add(name)) {
            throw new IllegalArgumentException(
                    "name is '%s', expected one that no communicator in the store has had"
                            .formatted(name));
        }
        Membership grown = members.other(name, size);
        MemorySegment id = Arena.ofAuto().allocate(nccl_h.NCCL_UNIQUE_ID_BYTES());
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

    private interface Maker {
        int make(MemorySegment slot, MemorySegment config);
    }

    private interface Naming {
        Membership name(int rank, int size);
    }

    private @Nullable NcclRank derive(
            String operation, boolean member, Maker maker, Naming naming) {
        Resources resources = new Resources(device);
        MemorySegment slot = resources.arena.allocate(ValueLayout.ADDRESS);
        NcclTask task = null;
        boolean done = false;
        try {
            MemorySegment config =
                    Objects.requireNonNullElse(
                            NcclInit.config(nccl, options, resources.arena), MemorySegment.NULL);
            task =
                    rank.start(
                            operation,
                            () -> maker.make(slot, config),
                            () -> slot.get(ValueLayout.JAVA_LONG, 0));
            rank.settle(task, operation);
            if (!member) {
                return null;
            }
            long made = slot.get(ValueLayout.JAVA_LONG, 0);
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
                            rank.handle().isBlocking(),
                            of,
                            size);
            AfterClose then = rank.afterClose();
            child.afterClose(then == null ? null : then.shared());
            done = true;
            return Descendants.add(rank, child);
        } finally {
            if (!done) {
                NcclInit.abandoning(nccl, device, resources, slot, task, rank.handle()::hasEnded)
                        .run();
            }
        }
    }
}

package io.jccl.engine.mpi;

import io.jccl.bindings.MpiApi;
import io.jccl.bootstrap.RankInfo;
import io.jccl.bootstrap.RankInfo.Fact;
import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Checks that all ranks of the job are compatible, through MPI itself and before anything else: the
 * same version of JCCL, the same library and the same settings.
 */
final class MpiHandshake {
    private final MpiApi mpi;
    private final long comm;
    private final int rank;
    private final int size;

    MpiHandshake(MpiApi mpi, long comm, int rank, int size) {
        this.mpi = mpi;
        this.comm = comm;
        this.rank = rank;
        this.size = size;
    }

    /** The facts that must be equal. */
    static List<Fact> facts(MpiApi mpi, MpiSettings settings) {
        String alike = "set it to the same value on all ranks, or on none (mpirun -x or -genv)";
        return List.of(
                new Fact(
                        "MPI libraries",
                        mpi.abi() + " " + mpi.library().version(),
                        "give all ranks the same library (MPI_HOME, or -Djccl.mpi=FILE)"),
                new Fact("values of " + MpiSettings.WAIT, settings.waiting(), alike),
                new Fact("values of " + MpiSettings.THREADS, settings.threads(), alike));
    }

    /** Throws, on all ranks with the same message, unless they are compatible. */
    void answer(List<Fact> facts) {
        String story = differences(RankInfo.own(rank, size, facts));
        if (story != null) {
            throw new JcclException(story);
        }
    }

    private @Nullable String differences(RankInfo own) {
        byte[] says = own.says().getBytes(StandardCharsets.UTF_8);
        byte[] card = own.write().getBytes(StandardCharsets.UTF_8);
        long hash = 1;
        for (byte b : says) {
            hash = hash * 0x5851F42D4C957F2DL + b; // Knuth's MMIX multiplier
        }
        try (Arena arena = Arena.ofConfined()) {
            // The largest and, as a complement, the smallest value: all are equal if these are.
            MemorySegment mine =
                    arena.allocateFrom(ValueLayout.JAVA_LONG, hash, ~hash, card.length);
            MemorySegment most = arena.allocate(ValueLayout.JAVA_LONG, 3);
            mpi.check(
                    mpi.MPI_Allreduce(
                            mine.address(),
                            most.address(),
                            3,
                            mpi.MPI_INT64_T(),
                            mpi.MPI_MAX(),
                            comm),
                    "MPI_Allreduce");
            if (most.getAtIndex(ValueLayout.JAVA_LONG, 0)
                    == ~most.getAtIndex(ValueLayout.JAVA_LONG, 1)) {
                return null;
            }
            // Only now, since this takes memory for all ranks.
            int room = (int) most.getAtIndex(ValueLayout.JAVA_LONG, 2) + 1;
            MemorySegment text = arena.allocate(room);
            MemorySegment all = arena.allocate((long) room * size);
            MemorySegment.copy(card, 0, text, ValueLayout.JAVA_BYTE, 0, card.length);
            mpi.check(
                    mpi.MPI_Allgather(
                            text.address(),
                            room,
                            mpi.MPI_BYTE(),
                            all.address(),
                            room,
                            mpi.MPI_BYTE(),
                            comm),
                    "MPI_Allgather");
            List<RankInfo> cards = new ArrayList<>();
            for (int r = 0; r < size; r++) {
                cards.add(RankInfo.read(r, all.getString((long) r * room)));
            }
            return RankInfo.differences("this MPI job", cards);
        }
    }
}

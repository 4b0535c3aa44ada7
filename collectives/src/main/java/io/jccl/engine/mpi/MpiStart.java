package io.jccl.engine.mpi;

import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.internal.MpiAttribute;
import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.security.SecureRandom;
import java.util.Map;

/** Starts MPI in this process, on the thread that then answers the other ranks. */
final class MpiStart {
    private MpiStart() {}

    /**
     * Initializes MPI, unless other code has.
     *
     * @param starting called when MPI is loaded, before MPI_Init_thread
     * @param finalizing called by MPI_Finalize, while MPI can still be used
     */
    static MpiProcess.State state(Map<String, String> env, Runnable starting, Runnable finalizing) {
        MpiSettings settings = MpiSettings.of(env);
        MpiEnvironment.prepare(env);
        MpiApi mpi = NativeLibraries.mpi();
        MpiAbi abi = mpi.abi();
        Arena arena = Arena.global();
        MemorySegment number = arena.allocate(Long.BYTES, Long.BYTES);
        mpi.check(mpi.MPI_Finalized(number), "MPI_Finalized");
        if (number.get(ValueLayout.JAVA_INT, 0) != 0) {
            throw MpiProcess.finalized();
        }
        mpi.check(mpi.MPI_Initialized(number), "MPI_Initialized");
        // By other code of this process, such as an embedded interpreter.
        boolean byOthers = number.get(ValueLayout.JAVA_INT, 0) != 0;
        int serialized = (int) abi.constant("MPI_THREAD_SERIALIZED");
        int multiple = (int) abi.constant("MPI_THREAD_MULTIPLE");
        int provided;
        if (byOthers) {
            mpi.check(mpi.MPI_Query_thread(number), "MPI_Query_thread");
            provided = number.get(ValueLayout.JAVA_INT, 0);
        } else {
            int wanted = settings.serialized() ? serialized : multiple;
            starting.run();
            mpi.check(
                    mpi.MPI_Init_thread(MemorySegment.NULL, MemorySegment.NULL, wanted, number),
                    "MPI_Init_thread");
            provided = Math.min(wanted, number.get(ValueLayout.JAVA_INT, 0));
        }
        if (provided < serialized) {
            throw new JcclException(
                    ("%s %s thread level %s, but JCCL calls MPI from several threads and needs"
                                    + " at least MPI_THREAD_SERIALIZED (%s): %s")
                            .formatted(
                                    mpi.library(),
                                    byOthers
                                            ? "was initialized by other code of this process with"
                                            : "grants",
                                    provided,
                                    serialized,
                                    byOthers
                                            ? "let that code call MPI_Init_thread with"
                                                    + " MPI_THREAD_MULTIPLE, or create JCCL's"
                                                    + " communicator first"
                                            : "build or choose an MPI with thread support"));
        }
        mpi.check(
                mpi.MPI_Comm_get_errhandler(mpi.MPI_COMM_WORLD(), number),
                "MPI_Comm_get_errhandler");
        long handler = abi.handle(number, 0);
        setHandler(mpi, mpi.MPI_COMM_WORLD(), mpi.MPI_ERRORS_RETURN());
        int rank;
        int size;
        long world;
        long control;
        try {
            rank = integer(mpi, mpi.MPI_Comm_rank(mpi.MPI_COMM_WORLD(), number), number);
            size = integer(mpi, mpi.MPI_Comm_size(mpi.MPI_COMM_WORLD(), number), number);
            MpiEnvironment.checkLauncher(env, mpi.library().toString(), size);
            try {
                new MpiHandshake(mpi, mpi.MPI_COMM_WORLD(), rank, size)
                        .answer(MpiHandshake.facts(mpi, settings));
            } catch (JcclException e) {
                if (!byOthers) {
                    // All ranks have the same error here: MPI can be finalized.
                    mpi.MPI_Finalize();
                }
                throw e;
            }
            world = duplicate(mpi, number);
            control = duplicate(mpi, number);
        } finally {
            if (byOthers) {
                // The world is that code's, and it may rely on its errors.
                setHandler(mpi, mpi.MPI_COMM_WORLD(), handler);
            }
        }
        mpi.check(
                mpi.MPI_Comm_create_keyval(
                        MpiAttribute.notCopied(),
                        MpiAttribute.deleted(finalizing),
                        number,
                        MemorySegment.NULL),
                "MPI_Comm_create_keyval");
        int attribute = number.get(ValueLayout.JAVA_INT, 0);
        mpi.check(
                mpi.MPI_Comm_set_attr(mpi.MPI_COMM_SELF(), attribute, MemorySegment.NULL),
                "MPI_Comm_set_attr");
        // Unless serialized calls were chosen, several threads may be in collectives.
        boolean blocking =
                agree(
                        mpi,
                        world,
                        !settings.polls() && (provided >= multiple || settings.serialized()));
        SerializedLock turn = provided < multiple ? new SerializedLock() : null;
        return new MpiProcess.State(
                mpi,
                abi,
                !byOthers,
                attribute,
                new MpiTypes(mpi),
                world,
                rank,
                size,
                most(mpi, world, new SecureRandom().nextLong()),
                blocking,
                turn,
                new ControlChannel(mpi, turn, control, rank, size));
    }

    /** Blocking and non-blocking collectives do not match each other, so all ranks use the same. */
    private static boolean agree(MpiApi mpi, long world, boolean blocking) {
        return most(mpi, world, blocking ? 0 : 1) == 0;
    }

    /** The maximum of all ranks' numbers. */
    private static long most(MpiApi mpi, long world, long mine) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment from = arena.allocateFrom(ValueLayout.JAVA_LONG, mine);
            MemorySegment to = arena.allocate(ValueLayout.JAVA_LONG);
            mpi.check(
                    mpi.MPI_Allreduce(
                            from.address(),
                            to.address(),
                            1,
                            mpi.MPI_INT64_T(),
                            mpi.MPI_MAX(),
                            world),
                    "MPI_Allreduce");
            return to.get(ValueLayout.JAVA_LONG, 0);
        }
    }

    private static int integer(MpiApi mpi, int code, MemorySegment number) {
        mpi.check(code, "MPI_Comm_rank or MPI_Comm_size");
        return number.get(ValueLayout.JAVA_INT, 0);
    }

    /** A separate communicator, whose messages match no others, and whose errors are returned. */
    private static long duplicate(MpiApi mpi, MemorySegment handle) {
        mpi.check(mpi.MPI_Comm_dup(mpi.MPI_COMM_WORLD(), handle), "MPI_Comm_dup");
        long made = mpi.abi().handle(handle, 0);
        setHandler(mpi, made, mpi.MPI_ERRORS_RETURN());
        return made;
    }

    private static void setHandler(MpiApi mpi, long comm, long handler) {
        mpi.check(mpi.MPI_Comm_set_errhandler(comm, handler), "MPI_Comm_set_errhandler");
    }
}

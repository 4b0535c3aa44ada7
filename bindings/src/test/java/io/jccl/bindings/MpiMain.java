package io.jccl.bindings;

import io.jccl.bindings.generated.mpi.MPI_Status;
import io.jccl.bindings.generated.mpi.MPI_User_function;
import io.jccl.bindings.generated.mpi.mpi_h;
import io.jccl.bindings.internal.ForeignMemory;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/** A world of one rank, and what its calls come to, a line each. */
final class MpiMain {
    private final MpiApi mpi;
    private final Arena arena;

    private MpiMain(MpiApi mpi, Arena arena) {
        this.mpi = mpi;
        this.arena = arena;
    }

    public static void main(String[] args) {
        switch (NativeLibraries.discover(NativeLibrary.MPI)) {
            case Discovery.Missing missing -> say("missing", missing.reason());
            case Discovery.Found found -> {
                try (Arena arena = Arena.ofShared()) {
                    new MpiMain(NativeLibraries.mpi(), arena).run();
                }
            }
        }
    }

    private static void say(String name, Object value) {
        System.out.println(name + ": " + value);
    }

    private void run() {
        MemorySegment number = arena.allocate(ValueLayout.JAVA_INT);
        mpi.check(
                mpi.MPI_Init_thread(
                        MemorySegment.NULL,
                        MemorySegment.NULL,
                        mpi_h.MPI_THREAD_MULTIPLE(),
                        number),
                "MPI_Init_thread");
        long world = mpi.MPI_COMM_WORLD();
        mpi.check(
                mpi.MPI_Comm_set_errhandler(world, mpi.MPI_ERRORS_RETURN()),
                "MPI_Comm_set_errhandler");
        mpi.check(mpi.MPI_Comm_rank(world, number), "MPI_Comm_rank");
        int rank = number.get(ValueLayout.JAVA_INT, 0);
        mpi.check(mpi.MPI_Comm_size(world, number), "MPI_Comm_size");
        say("rank", rank + " of " + number.get(ValueLayout.JAVA_INT, 0));
        MemorySegment text = arena.allocate(mpi_h.MPI_MAX_LIBRARY_VERSION_STRING());
        mpi.check(mpi.MPI_Get_library_version(text, number), "MPI_Get_library_version");
        say("library", text.getString(0));
        say(
                "lacking",
                BoundLibrary.MPI
                        .functions()
                        .map(Object::toString)
                        .filter(name -> !mpi.supports(name))
                        .toList());
        double before = mpi.MPI_Wtime();
        say("clock", mpi.MPI_Wtime() >= before && mpi.MPI_Wtick() > 0);
        allReduce(world);
        ownOperation();
        status(world);
        failures(world);
        mpi.check(mpi.MPI_Finalize(), "MPI_Finalize");
        mpi.check(mpi.MPI_Finalized(number), "MPI_Finalized");
        say("finalized", number.get(ValueLayout.JAVA_INT, 0) == 1);
    }

    private void allReduce(long world) {
        MemorySegment send = arena.allocateFrom(ValueLayout.JAVA_DOUBLE, 1.5, -2, 3.25);
        MemorySegment recv = arena.allocate(ValueLayout.JAVA_DOUBLE, 3);
        mpi.check(
                mpi.MPI_Allreduce(
                        send.address(), recv.address(), 3, mpi.MPI_DOUBLE(), mpi.MPI_SUM(), world),
                "MPI_Allreduce");
        say("allreduce", Arrays.toString(recv.toArray(ValueLayout.JAVA_DOUBLE)));
        mpi.check(
                mpi.MPI_Allreduce(
                        mpi.inPlace(), send.address(), 3, mpi.MPI_DOUBLE(), mpi.MPI_MAX(), world),
                "MPI_Allreduce");
        say("allreduce in place", Arrays.toString(send.toArray(ValueLayout.JAVA_DOUBLE)));
    }

    /** Adds ints, called from C. */
    private void ownOperation() {
        MemorySegment function =
                MPI_User_function.allocate(
                        (in, inOut, count, type) -> {
                            int n =
                                    ForeignMemory.at(count.address(), 4)
                                            .get(ValueLayout.JAVA_INT, 0);
                            MemorySegment a = ForeignMemory.at(in.address(), 4L * n);
                            MemorySegment b = ForeignMemory.at(inOut.address(), 4L * n);
                            for (int i = 0; i < n; i++) {
                                b.setAtIndex(
                                        ValueLayout.JAVA_INT,
                                        i,
                                        a.getAtIndex(ValueLayout.JAVA_INT, i)
                                                + b.getAtIndex(ValueLayout.JAVA_INT, i));
                            }
                        },
                        arena);
        MemorySegment op = arena.allocate(ValueLayout.JAVA_LONG);
        mpi.check(mpi.MPI_Op_create(function, 1, op), "MPI_Op_create");
        MemorySegment in = arena.allocateFrom(ValueLayout.JAVA_INT, 1, 2, 3);
        MemorySegment inOut = arena.allocateFrom(ValueLayout.JAVA_INT, 10, 20, 30);
        mpi.check(
                mpi.MPI_Reduce_local(
                        in.address(),
                        inOut.address(),
                        3,
                        mpi.MPI_INT32_T(),
                        op.get(ValueLayout.JAVA_LONG, 0)),
                "MPI_Reduce_local");
        say("own operation", Arrays.toString(inOut.toArray(ValueLayout.JAVA_INT)));
        mpi.check(mpi.MPI_Op_free(op), "MPI_Op_free");
    }

    private void status(long world) {
        MemorySegment send = arena.allocateFrom(ValueLayout.JAVA_DOUBLE, 7, 8, 9);
        MemorySegment recv = arena.allocate(ValueLayout.JAVA_DOUBLE, 5);
        MemorySegment status = arena.allocate(MPI_Status.layout());
        MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
        mpi.check(
                mpi.MPI_Sendrecv(
                        send.address(),
                        3,
                        mpi.MPI_DOUBLE(),
                        0,
                        77,
                        recv.address(),
                        5,
                        mpi.MPI_DOUBLE(),
                        mpi_h.MPI_ANY_SOURCE(),
                        mpi_h.MPI_ANY_TAG(),
                        world,
                        status),
                "MPI_Sendrecv");
        mpi.check(mpi.MPI_Get_count(status, mpi.MPI_DOUBLE(), count), "MPI_Get_count");
        say(
                "status",
                "source %d, tag %d, error %d, %d of MPI_DOUBLE"
                        .formatted(
                                MPI_Status.MPI_SOURCE(status),
                                MPI_Status.MPI_TAG(status),
                                MPI_Status.MPI_ERROR(status),
                                count.get(ValueLayout.JAVA_INT, 0)));
    }

    private void failures(long world) {
        int code = mpi.MPI_Send(0, -1, mpi.MPI_DOUBLE(), 0, 1, world);
        try {
            mpi.check(code, "MPI_Send");
        } catch (MpiException e) {
            say("bad count", String.valueOf(e.getMessage()));
        }
        say("unknown code", mpi.errorString(12345));
    }
}

package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.MpiApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.testkit.Messages;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers.Worker;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Processes in which other code uses MPI too, and initializes or finalizes it. */
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class MpiSharedTest {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    static List<MpiLauncher> launchers() {
        return MpiFaultTest.here();
    }

    private static void run(MpiLauncher launcher, String what, String... parts) {
        launcher.assume();
        Worker job = launcher.start(2, List.of(), Program.class, what);
        try {
            int exit = job.join(PATIENCE);
            String text = String.join("\n", job.lines());
            assertEquals(0, exit, text);
            for (String part : parts) {
                assertEquals(2, job.lines().stream().filter(l -> l.contains(part)).count(), text);
            }
        } finally {
            job.kill();
        }
    }

    /** MPI's functions crash after MPI_Finalize, so the thread of JCCL may call none. */
    @ParameterizedTest
    @MethodSource("launchers")
    void otherCodeFinalizesMpi(MpiLauncher launcher) {
        run(launcher, "after", "sum 2.0", "open: other code", "again: other code");
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void otherCodeHasFinalizedMpi(MpiLauncher launcher) {
        run(launcher, "before", "again: other code");
    }

    /** Exit handlers of C run when no C code can call the JVM any more. */
    @ParameterizedTest
    @MethodSource("launchers")
    void otherCodeFinalizesMpiAfterTheJvm(MpiLauncher launcher) {
        run(launcher, "at exit", "ends");
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void otherCodeFinalizesMpiAfterTheJvmThoughJcclFailed(MpiLauncher launcher) {
        run(launcher, "at exit, failed", "ends");
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void otherCodeChoseOneThread(MpiLauncher launcher) {
        run(launcher, "funneled", "again: MPI ", "MPI_THREAD_MULTIPLE");
    }

    /** A rank. */
    static final class Program {
        public static void main(String[] args) throws Throwable {
            MpiApi mpi = NativeLibraries.mpi();
            String level = args[0].equals("funneled") ? "FUNNELED" : "MULTIPLE";
            MemorySegment number = Arena.global().allocate(Long.BYTES);
            mpi.check(
                    mpi.MPI_Init_thread(
                            MemorySegment.NULL,
                            MemorySegment.NULL,
                            (int) mpi.abi().constant("MPI_THREAD_" + level),
                            number),
                    "MPI_Init_thread");
            if (args[0].startsWith("at exit")) {
                finalizeAtExit(mpi);
                try (Communicator comm = Communicator.mpi(CommunicatorOptions.DEFAULT)) {
                    comm.barrier(Device.host().defaultStream());
                    if (args[0].endsWith("failed")) {
                        comm.abort("work is left in MPI");
                    }
                }
                System.out.println("ends");
                System.exit(0);
            }
            if (args[0].equals("after")) {
                useAndFinalize(mpi, number);
            } else if (args[0].equals("before")) {
                mpi.check(mpi.MPI_Finalize(), "MPI_Finalize");
            }
            say("again", () -> Communicator.mpi(CommunicatorOptions.DEFAULT));
            if (args[0].equals("funneled")) {
                mpi.check(mpi.MPI_Finalize(), "MPI_Finalize");
            }
        }

        @SuppressWarnings("restricted")
        private static void finalizeAtExit(MpiApi mpi) throws Throwable {
            Linker linker = Linker.nativeLinker();
            MethodHandle register =
                    linker.downcallHandle(
                            linker.defaultLookup().findOrThrow("__cxa_atexit"),
                            FunctionDescriptor.of(
                                    ValueLayout.JAVA_INT,
                                    ValueLayout.ADDRESS,
                                    ValueLayout.ADDRESS,
                                    ValueLayout.ADDRESS));
            MemorySegment function =
                    SymbolLookup.libraryLookup(mpi.library().path(), Arena.global())
                            .findOrThrow("MPI_Finalize");
            assertEquals(
                    0,
                    (int) register.invokeExact(function, MemorySegment.NULL, MemorySegment.NULL));
        }

        private static void useAndFinalize(MpiApi mpi, MemorySegment number)
                throws InterruptedException {
            Communicator.mpi(CommunicatorOptions.DEFAULT).close();
            mpi.check(mpi.MPI_Comm_get_errhandler(mpi.MPI_COMM_WORLD(), number), "get_errhandler");
            assertEquals(mpi.MPI_ERRORS_ARE_FATAL(), mpi.abi().handle(number, 0));
            // A copy does not inherit that this process waits for MPI_Finalize.
            mpi.check(mpi.MPI_Comm_dup(mpi.MPI_COMM_SELF(), number), "MPI_Comm_dup");
            mpi.check(mpi.MPI_Comm_free(number), "MPI_Comm_free");
            try (Communicator comm = Communicator.mpi(CommunicatorOptions.DEFAULT);
                    var one = Device.host().allocate(DataType.FLOAT32, 1)) {
                one.set(0, 1);
                comm.allReduce(one, ReduceOp.SUM, Device.host().defaultStream());
                System.out.println("sum " + one.get(0));
                mpi.check(mpi.MPI_Finalize(), "MPI_Finalize");
                Thread.sleep(200); // some rounds of JCCL's thread
                say("open", () -> comm.barrier(Device.host().defaultStream()));
            }
            mpi.check(mpi.MPI_Finalized(number), "MPI_Finalized");
            assertTrue(number.get(ValueLayout.JAVA_INT, 0) != 0);
        }

        private static void say(String what, Runnable body) {
            System.out.println(what + ": " + Messages.of(JcclException.class, body::run));
        }
    }
}

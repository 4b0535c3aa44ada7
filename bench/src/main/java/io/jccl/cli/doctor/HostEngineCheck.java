package io.jccl.cli.doctor;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.LocalJob;
import io.jccl.ReduceOp;
import io.jccl.cli.doctor.Facts.HostEngine;
import io.jccl.cli.doctor.Facts.Step;
import io.jccl.device.DataType;
import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.concurrent.Callable;

/** Runs the host engine briefly. */
final class HostEngineCheck {
    private static final int RANKS = 2;
    private static final int COUNT = 1_000;

    /** No less than the control memory of two ranks and a first buffer of each. */
    private static final int BYTES = (2 << 20) + (128 << 10);

    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private HostEngineCheck() {}

    static HostEngine run() {
        Step threads = step(HostEngineCheck::threads);
        Reading<Path> folder =
                Bounded.call("the folder for shared memory", PATIENCE, LocalJob::sharedFolder);
        Step processes = step(() -> processes(folder));
        return new HostEngine(
                threads.works() && processes.works(),
                threads,
                processes,
                folder.map(Path::toString),
                folder.flatMap(f ->
                        Bounded.call(
                                "the file system", PATIENCE, () -> Machine.space(f.toString()))));
    }

    private static Step step(Callable<String> body) {
        return switch (Bounded.call("the host engine", PATIENCE, body)) {
            case Reading.Known<String>(String detail) -> new Step(true, detail);
            case Reading.Unknown<String>(String reason) -> new Step(false, reason);
        };
    }

    private static String threads() {
        long start = System.nanoTime();
        Communicator.runLocal(
                RANKS,
                CommunicatorOptions.DEFAULT.withTimeout(PATIENCE.dividedBy(2)),
                HostEngineCheck::allReduce);
        return format(
                "allReduce of %d float32 over %d threads, checked, in %.0f ms",
                COUNT, RANKS, (System.nanoTime() - start) / 1e6);
    }

    private static void allReduce(Communicator comm) {
        try (var buffer = comm.device().allocate(DataType.FLOAT32, COUNT)) {
            for (int i = 0; i < COUNT; i++) {
                buffer.set(i, i + comm.rank());
            }
            comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
            for (int i = 0; i < COUNT; i++) {
                double expected = 2.0 * i + 1;
                if (buffer.get(i) != expected) {
                    throw new IllegalStateException(
                            format(
                                    "element %s is %s, expected %s: a bug of JCCL or broken"
                                            + " hardware",
                                    i, buffer.get(i), expected));
                }
            }
        }
    }

    /** Uses a file as ranks in separate processes use their shared file. */
    static String processes(Reading<Path> where) throws IOException {
        Path folder =
                switch (where) {
                    case Reading.Known<Path>(Path known) -> known;
                    case Reading.Unknown<Path>(String reason) -> throw new IOException(reason);
                };
        Path file = Files.createTempFile(folder, ".jccl-doctor-", "");
        try (Arena arena = Arena.ofShared();
                FileChannel channel =
                        FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            // Written, not only resized, so that a full file system fails here.
            AtomicFile.writeAll(channel, ByteBuffer.allocateDirect(BYTES));
            MemorySegment one = channel.map(MapMode.READ_WRITE, 0, BYTES, arena);
            MemorySegment other = channel.map(MapMode.READ_WRITE, 0, BYTES, arena);
            one.set(ValueLayout.JAVA_LONG, BYTES - Long.BYTES, COUNT);
            if (other.get(ValueLayout.JAVA_LONG, BYTES - Long.BYTES) != COUNT) {
                throw new IOException("two mappings of " + file + " do not show the same memory");
            }
        } finally {
            Files.deleteIfExists(file);
        }
        return "shared memory created, mapped and deleted in " + folder;
    }
}

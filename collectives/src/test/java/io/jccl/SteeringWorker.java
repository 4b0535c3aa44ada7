package io.jccl;

import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.internal.ProcessEnvironment;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.nccl.TopologyXml;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A JVM whose NCCL is steered. */
public final class SteeringWorker {
    private static final int RANKS = 3;

    private SteeringWorker() {}

    /**
     * Prints {@code STEERED ok}, or what is wrong.
     *
     * @param args none
     */
    public static void main(String[] args) {
        try {
            run();
            System.out.println("STEERED ok");
        } catch (Throwable t) {
            t.printStackTrace(System.out);
            System.out.println("STEERED " + t);
        }
    }

    private static void run() throws Exception {
        // Arguments that are refused are not a first communicator.
        NcclSteering refused =
                NcclSteering.builder(NcclSteeringTest.plan(2, true))
                        .mode(NcclSteering.Mode.ENFORCE)
                        .algorithm(Operation.ALL_REDUCE, "tree", "LL", "not for long")
                        .build();
        try {
            Communicator.local(
                    Collections.nCopies(2, NcclRanks.devices(1).getFirst()),
                    NcclRanks.OPTIONS.withSteering(refused));
            throw new AssertionError("one device twice was not refused");
        } catch (IllegalArgumentException e) {
            expect("allreduce:tree", ProcessEnvironment.get("NCCL_ALGO"), "until another");
        }
        NcclSteering steering =
                NcclSteering.builder(NcclSteeringTest.plan(RANKS, true))
                        .mode(NcclSteering.Mode.ENFORCE)
                        .algorithm(Operation.ALL_REDUCE, "ring", "Simple", "large sizes")
                        .algorithm(Operation.BROADCAST, "ring", "LL", "small sizes")
                        .topologyFile()
                        .graphFile()
                        .build();
        CommunicatorOptions options = NcclRanks.OPTIONS.withSteering(steering);
        List<Communicator> ranks = Communicator.local(NcclRanks.devices(RANKS), options);
        for (int r = 0; r < RANKS; r++) {
            expect(r, ranks.get(r).device().index(), "ranks keep their numbering");
        }
        NcclRanks.checkUsable(ranks);
        expect("allreduce:ring;broadcast:ring", parameter("NCCL_ALGO"), "what NCCL sees");
        // Set by whoever started this process.
        expect("Simple", parameter("NCCL_PROTO"), "what was set stays");
        expect(
                true,
                steering.advice().text().contains("NCCL_PROTO is set to Simple already"),
                steering.advice().text());
        Path topology = Path.of(ProcessEnvironment.get("NCCL_TOPO_FILE") + "");
        Path graph = Path.of(ProcessEnvironment.get("NCCL_GRAPH_FILE") + "");
        Topology read = TopologyXml.read(Files.readString(topology), false, "");
        expect(RANKS, read.gpus().size(), "GPUs of the file");
        expect(true, Files.readString(graph).contains("<channel>"), "channels of the file");
        expect(
                "[OWNER_EXECUTE, OWNER_READ, OWNER_WRITE]",
                Files.getPosixFilePermissions(topology.getParent()).stream()
                        .sorted(java.util.Comparator.comparing(Enum::name))
                        .toList()
                        .toString(),
                "the folder is private");
        List<Communicator> more = Communicator.local(NcclRanks.devices(2), options);
        NcclRanks.close(more);
        try (NcclSteering other =
                NcclSteering.builder(NcclSteeringTest.plan(2, true))
                        .mode(NcclSteering.Mode.ENFORCE)
                        .build()) {
            refused(other, "with another steering");
        }
        NcclRanks.close(ranks);
        refused.close();
        expect(
                "allreduce:ring;broadcast:ring",
                ProcessEnvironment.get("NCCL_ALGO"),
                "after the other's close");
        steering.close();
        steering.close();
        expect(null, ProcessEnvironment.get("NCCL_ALGO"), "after close");
        expect("Simple", ProcessEnvironment.get("NCCL_PROTO"), "after close");
        expect(null, ProcessEnvironment.get("NCCL_TOPO_FILE"), "after close");
        expect(false, Files.exists(topology.getParent()), "the folder after close");
        NcclRanks.close(Communicator.local(NcclRanks.devices(2), NcclRanks.OPTIONS));
    }

    private static void refused(NcclSteering steering, String why) {
        try {
            Communicator.local(NcclRanks.devices(2), NcclRanks.OPTIONS.withSteering(steering));
        } catch (IllegalStateException e) {
            expect(true, (e.getMessage() + "").contains(why), e + "");
            return;
        }
        throw new AssertionError("steering was not refused");
    }

    private static String parameter(String name) {
        NcclApi nccl = NativeLibraries.nccl();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment value = arena.allocate(ValueLayout.ADDRESS);
            MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
            nccl.check(
                    nccl.ncclParamGetParameter(arena.allocateFrom(name), value, length),
                    "ncclParamGetParameter",
                    0);
            // The fake reads it with getenv, as NCCL does.
            return io.jccl.bindings.internal.ForeignMemory.at(
                            value.get(ValueLayout.JAVA_LONG, 0),
                            length.get(ValueLayout.JAVA_INT, 0) + 1L)
                    .getString(0);
        }
    }

    private static void expect(@Nullable Object expected, @Nullable Object found, String what) {
        if (!java.util.Objects.equals(expected, found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }
}

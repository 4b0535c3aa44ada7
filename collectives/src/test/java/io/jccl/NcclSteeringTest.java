package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.internal.ProcessEnvironment;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import io.jccl.topology.Gpu;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@UsesFakes
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class NcclSteeringTest {
    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    /** A ring over GPUs on NVSwitches: 0, n-1, n-2, ... */
    static Plan plan(int n, boolean addresses) {
        Topology.Builder b = new Topology.Builder("a machine");
        for (int i = 0; i < n; i++) {
            b.add(
                    new Gpu(
                            i,
                            "GPU" + i,
                            i,
                            null,
                            90,
                            Source.DEFAULT,
                            addresses ? "0000:0" + i + ":00.0" : null,
                            null,
                            null,
                            null));
        }
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        int bridge = b.addSwitch("bridge", Switch.Kind.HOST_BRIDGE);
        int sw = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        b.link(bridge, numa, LinkKind.HOST_BRIDGE, 1, 48, Source.DEFAULT);
        for (int i = 0; i < n; i++) {
            b.link(i, bridge, LinkKind.PCIE, 1, 24, Source.DEFAULT);
            b.link(i, sw, LinkKind.NVLINK, 18, 360, Source.DEFAULT);
        }
        Topology t = b.build();
        List<Integer> gpus = new ArrayList<>();
        List<Hop> hops = new ArrayList<>();
        for (int i = n; i > 0; i--) {
            hops.add(new Hop(i % n, i - 1, Objects.requireNonNull(t.route(i % n, i - 1))));
            gpus.addFirst(i - 1);
        }
        return new Plan(
                t,
                Operation.ALL_REDUCE,
                gpus,
                0,
                List.of(new Channel.Ring(hops, 360)),
                360,
                360,
                "egress of GPU0",
                List.of());
    }

    @Test
    void adviceSetsNothing() {
        Path file;
        try (NcclSteering steering =
                NcclSteering.builder(plan(4, true))
                        .algorithm(Operation.ALL_REDUCE, "ring", "Simple", "because")
                        .topologyFile()
                        .graphFile()
                        .build()) {
            assertEquals(NcclSteering.Mode.ADVISE, steering.mode());
            NcclSteering.Advice advice = steering.advice();
            assertEquals(
                    List.of("NCCL_ALGO", "NCCL_PROTO", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"),
                    advice.settings().stream().map(NcclSteering.Setting::variable).toList());
            assertTrue(advice.text().contains("NCCL_ALGO=allreduce:ring  (because)"));
            assertTrue(advice.text().contains("rank order: [0, 3, 2, 1]"), advice.text());
            file = Path.of(advice.settings().get(2).value());
            assertTrue(Files.exists(file));
            List<Communicator> ranks =
                    Communicator.local(
                            NcclRanks.devices(2), NcclRanks.OPTIONS.withSteering(steering));
            for (NcclSteering.Setting s : advice.settings()) {
                assertNull(ProcessEnvironment.get(s.variable()), s.variable());
            }
            NcclRanks.close(ranks);
        }
        assertFalse(Files.exists(file.getParent()));
    }

    @Test
    void whatOthersPutBesideTheFilesStays() throws IOException {
        Path foreign;
        try (NcclSteering steering =
                NcclSteering.builder(plan(4, true)).topologyFile().graphFile().build()) {
            Path file = Path.of(steering.advice().settings().getFirst().value());
            foreign = Files.writeString(file.resolveSibling("notes.txt"), "notes");
        }
        try (var left = Files.list(foreign.getParent())) {
            assertEquals(List.of(foreign), left.toList());
        }
        Files.delete(foreign);
        Files.delete(foreign.getParent());
    }

    @Test
    void theCostModelChooses() {
        try (NcclSteering steering =
                NcclSteering.builder(plan(4, true))
                        .algorithm(Operation.ALL_GATHER, 1L << 30)
                        .algorithm(Operation.ALL_TO_ALL, 1L << 20)
                        .build()) {
            String text = steering.advice().text();
            assertTrue(text.contains("NCCL_ALGO=allgather:"), text);
            assertTrue(text.contains("NCCL_PROTO=allgather:Simple  (all_gather of 107374"), text);
            assertTrue(text.contains("no NCCL_ALGO for alltoall"), text);
        }
    }

    @Test
    void devicesInTheOrderOfTheRing() {
        try (NcclSteering steering = NcclSteering.builder(plan(4, true)).build()) {
            assertEquals(
                    List.of("a", "d", "c", "b"), steering.ordered(List.of("a", "b", "c", "d")));
            String message =
                    Messages.of(
                            IllegalArgumentException.class, () -> steering.ordered(List.of("a")));
            assertTrue(message.contains("1 entries") && message.contains("4 ranks"), message);
        }
    }

    @Test
    void whatCannotBeToldIsNoted() {
        Plan ring = plan(3, false);
        Plan exchange =
                new Plan(
                        ring.topology(),
                        Operation.ALL_GATHER,
                        ring.gpus(),
                        0,
                        List.of(new Channel.Exchange(ring.channels().getFirst().hops(), 1)),
                        1,
                        1,
                        "nothing",
                        List.of());
        try (NcclSteering steering =
                NcclSteering.builder(exchange).topologyFile().graphFile().build()) {
            NcclSteering.Advice advice = steering.advice();
            assertEquals(List.of(), advice.settings());
            assertEquals(List.of(0, 1, 2), advice.order());
            assertTrue(advice.text().contains("the PCI address of GPU0 is not known"));
            assertTrue(advice.text().contains("no NCCL_GRAPH_FILE: "), advice.text());
            assertTrue(advice.text().contains("the plan has no ring"), advice.text());
        }
    }

    @Test
    void whatIsNotNcclsIsRefused() {
        NcclSteering.Builder b = NcclSteering.builder(plan(2, true));
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> b.algorithm(Operation.ALL_REDUCE, "rings", "LL", ""));
        assertTrue(message.contains("'rings'"), message);
        assertThrows(
                IllegalArgumentException.class,
                () -> b.algorithm(Operation.ALL_REDUCE, "ring", "LL64", ""));
        message =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> b.algorithm(Operation.ALL_TO_ALL, "ring", "LL", ""));
        assertTrue(message.contains("alltoall"), message);
    }

    @Test
    void enforcingIsRefusedOnceNcclIsInUse() {
        NcclRanks.close(Communicator.local(NcclRanks.devices(2), NcclRanks.OPTIONS));
        try (NcclSteering steering =
                NcclSteering.builder(plan(2, true))
                        .mode(NcclSteering.Mode.ENFORCE)
                        .algorithm(Operation.ALL_REDUCE, "tree", "LL", "why not")
                        .build()) {
            CommunicatorOptions options = NcclRanks.OPTIONS.withSteering(steering);
            String message =
                    Messages.of(
                            IllegalStateException.class,
                            () -> Communicator.local(NcclRanks.devices(2), options));
            assertTrue(message.contains("without steering"), message);
            assertTrue(message.contains("NCCL_ALGO=allreduce:tree"), message);
            assertNull(ProcessEnvironment.get("NCCL_ALGO"));
        }
    }

    @Tag("exhaustive")
    @Test
    void enforcedVariablesArriveInNativeCode() throws Exception {
        Map<String, String> environment = Map.of("NCCL_PROTO", "Simple");
        try (Workers workers = new Workers(1, Workers.newJobId(), TestFake.flags(), environment)) {
            Workers.Worker worker = workers.start(0, SteeringWorker.class);
            String line = worker.await("STEERED ", Duration.ofSeconds(60));
            assertEquals("STEERED ok", line, () -> String.join("\n", worker.lines()));
            assertEquals(0, worker.join(Duration.ofSeconds(20)));
        }
    }
}

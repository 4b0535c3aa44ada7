package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.rendezvous.Store;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServerWorker;
import io.jccl.testfake.TestFake;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Ranks of the NCCL engine as processes on the fake that know each other by a store over TCP alone,
 * as on several machines: after any fault all surviving ranks end and report the same cause.
 */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class NcclStoreFaultTest {
    /** For starting JVMs on a busy machine, and for noticing what takes the store 30 seconds. */
    private static final Duration PATIENCE = Duration.ofSeconds(90);

    /** Never waited for. */
    private static final String LONG = "600";

    /** Long enough for those who come to be there on a busy machine. */
    private static final String SHORT = "25";

    @TempDir Path temporary = Path.of("");

    private final String job = Workers.newJobId();
    private final String store = "tcp://127.0.0.1:" + Workers.freePort();

    private record Report(Worker worker, String type, String message) {
        static Report of(Worker worker) {
            String[] words = worker.await("ERROR ", PATIENCE).split(" ", 4);
            worker.await("CLOSED", PATIENCE);
            assertEquals(0, worker.join(PATIENCE));
            return new Report(worker, words[1], words[3]);
        }

        void is(Class<?> expected, String... texts) {
            assertEquals(expected.getSimpleName(), type, this::toString);
            for (String text : texts) {
                assertTrue(message.contains(text), () -> "no '" + text + "' in " + this);
            }
        }

        @Override
        public String toString() {
            return String.join("\n", worker.lines());
        }
    }

    private Workers world(int size, String... more) {
        Map<String, String> environment = new HashMap<>();
        environment.put("JCCL_ENGINE", "nccl");
        environment.put("JCCL_STORE", store);
        environment.put("JCCL_STORE_SECRET", "of this test");
        for (String variable : more) {
            String[] pair = variable.split("=", 2);
            environment.put(pair[0], pair[1]);
        }
        List<String> flags = new ArrayList<>(TestFake.flags());
        flags.add("-Djava.io.tmpdir=" + temporary);
        return new Workers(size, job, flags, environment);
    }

    /** The one message that all had. */
    private static Report oneStory(List<Report> reports) {
        assertEquals(
                1,
                new HashSet<>(reports.stream().map(Report::message).toList()).size(),
                reports::toString);
        return reports.getFirst();
    }

    /** Where the exhaustive run tries that nothing of the fault remains; the default run: once. */
    void triesAgain() {}

    /** The same program, started again where it failed. */
    final void startsAgain(String... more) {
        try (Workers again = world(3, more)) {
            again.startAll(FaultWorker.class, "hello", LONG);
            for (Worker worker : again.all()) {
                worker.await("OK", PATIENCE);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE), worker.lines()::toString);
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1})
    void missingRankIsNamedByAllAlike(int missing) {
        try (Workers workers = world(3)) {
            for (int rank = 0; rank < 3; rank++) {
                if (rank != missing) {
                    workers.start(rank, FaultWorker.class, "hello", SHORT);
                }
            }
            oneStory(workers.all().stream().map(Report::of).toList())
                    .is(
                            CollectiveTimeoutException.class,
                            "rank(s) " + missing + " of 3",
                            "rank 0 (");
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2})
    void missingRankIsNamedByAllAlikeElsewhere(int missing) {
        missingRankIsNamedByAllAlike(missing);
    }

    @Tag("exhaustive")
    @Test
    void missingRankThatServesTheStoreIsNamed() {
        try (Workers workers = world(3)) {
            workers.start(1, FaultWorker.class, "hello", "5");
            workers.start(2, FaultWorker.class, "hello", "5");
            oneStory(workers.all().stream().map(Report::of).toList())
                    .is(JcclTimeoutException.class, store, "rank 0", "PT5S");
        }
    }

    @Tag("exhaustive")
    @Test
    void lateRankIsWaitedFor() throws InterruptedException {
        try (Workers workers = world(2)) {
            Worker first = workers.start(1, FaultWorker.class, "hello", LONG);
            Thread.sleep(2_000);
            assertTrue(first.isAlive(), first.lines()::toString);
            workers.start(0, FaultWorker.class, "hello", LONG);
            workers.all().forEach(w -> w.await("OK", PATIENCE));
        }
    }

    @Tag("exhaustive")
    @Test
    void twoProcessesWithOneNumberAreNamedByAllAlike() {
        try (Workers workers = world(3)) {
            workers.start(0, FaultWorker.class, "hello", LONG);
            Worker one = workers.start(1, FaultWorker.class, "hello", LONG);
            Worker two = workers.start(1, FaultWorker.class, "hello", LONG);
            oneStory(workers.all().stream().map(Report::of).toList())
                    .is(
                            JcclException.class,
                            "two processes claim rank 1",
                            ":" + one.pid(),
                            ":" + two.pid());
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void wrongWorldSizeIsNamedByAllAlike() {
        try (Workers good = world(3);
                Workers bad = world(2)) {
            good.start(0, FaultWorker.class, "hello", LONG);
            good.start(2, FaultWorker.class, "hello", LONG);
            Worker one = bad.start(1, FaultWorker.class, "hello", LONG);
            List<Worker> all = new ArrayList<>(good.all());
            all.add(one);
            oneStory(all.stream().map(Report::of).toList())
                    .is(
                            JcclException.class,
                            "different world sizes",
                            "rank 1 2",
                            ":" + one.pid(),
                            "rank 0 3");
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void wrongSecretIsNamedAndMissingToTheOthers() {
        try (Workers good = world(3);
                Workers bad = world(3, "JCCL_STORE_SECRET=another")) {
            good.start(0, FaultWorker.class, "hello", SHORT);
            good.start(2, FaultWorker.class, "hello", SHORT);
            Worker one = bad.start(1, FaultWorker.class, "hello", SHORT);
            Report.of(one).is(JcclException.class, "another secret", "JCCL_STORE_SECRET", store);
            oneStory(good.all().stream().map(Report::of).toList())
                    .is(CollectiveTimeoutException.class, "rank(s) 1 of 3");
        }
        triesAgain();
    }

    /** Rank 2 does not come, so all would wait for it for long. */
    @Tag("exhaustive")
    @Test
    void killedWhileOthersComeIsNamed() throws InterruptedException {
        try (Workers workers = world(3)) {
            Worker first = workers.start(0, FaultWorker.class, "hello", LONG);
            Worker killed = workers.start(1, FaultWorker.class, "hello", LONG);
            StoreSecret secret = StoreSecret.of("of this test");
            try (Store client = Store.connect(store, secret, PATIENCE)) {
                byte[] card = client.await("world/card-1", PATIENCE);
                assertTrue(card.length > 0);
                Thread.sleep(3_000);
            }
            killed.kill();
            Report.of(first)
                    .is(RankFailedException.class, "rank 1 (", ":" + killed.pid(), "sign of life");
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void killedDuringInitIsNoticed() {
        try (Workers good = world(3);
                Workers bad = world(3, "JCCL_FAKE_INJECT=ncclCommInitRankConfig:1:kill")) {
            bad.start(1, FaultWorker.class, "hello", SHORT);
            good.start(0, FaultWorker.class, "hello", SHORT);
            good.start(2, FaultWorker.class, "hello", SHORT);
            for (Worker worker : good.all()) {
                Report report = Report.of(worker);
                assertTrue(
                        List.of("CollectiveTimeoutException", "RankFailedException")
                                .contains(report.type),
                        report::toString);
                assertTrue(report.message.contains("ncclCommInitRank"), report::toString);
            }
        }
        triesAgain();
    }

    /**
     * NCCL or the store knows of it first: an error, or signs of life that do not come any more.
     * The others hear of it from the first.
     */
    @Tag("exhaustive")
    @Test
    void killedRankIsNamed() {
        try (Workers workers = world(3)) {
            workers.startAll(FaultWorker.class, "allReduce", LONG);
            workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
            workers.all().get(1).kill();
            for (int rank : new int[] {0, 2}) {
                Report report = Report.of(workers.all().get(rank));
                assertTrue(
                        List.of("NcclException", "RankFailedException").contains(report.type),
                        report::toString);
                assertTrue(report.message.contains("rank 1"), report::toString);
            }
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void killedRankThatServesTheStoreEndsAll() {
        try (Workers workers = world(3)) {
            workers.startAll(FaultWorker.class, "allReduce", LONG);
            workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
            workers.all().getFirst().kill();
            oneStory(IntStream.of(1, 2).mapToObj(workers.all()::get).map(Report::of).toList())
                    .is(JcclException.class, store + " is lost", "rank 0", "has ended");
        }
        startsAgain();
    }

    @Test
    void killedStoreEndsAllAlike() {
        String port = store.substring(store.lastIndexOf(':') + 1);
        try (Workers servers = world(3);
                Workers workers = world(3)) {
            Worker server = servers.start(0, StoreServerWorker.class, "127.0.0.1", port);
            server.await("PORT ", PATIENCE);
            workers.startAll(FaultWorker.class, "allReduce", LONG);
            workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
            server.kill();
            oneStory(workers.all().stream().map(Report::of).toList())
                    .is(JcclException.class, store + " is lost", "jccl store", "has ended");
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void stoppedRankIsNamed() {
        try (Workers workers = world(3)) {
            workers.startAll(FaultWorker.class, "allReduce", SHORT);
            workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
            Worker stopped = workers.all().get(1);
            stopped.signal("STOP");
            for (int rank : new int[] {0, 2}) {
                Report report = Report.of(workers.all().get(rank));
                assertTrue(report.message.contains("rank 1"), report::toString);
            }
            stopped.signal("CONT");
            // The others have gone, and with rank 0 the store.
            stopped.await("CLOSED", PATIENCE);
            assertEquals(0, stopped.join(PATIENCE), stopped.lines()::toString);
            assertFalse(stopped.lines().contains("OK"), stopped.lines()::toString);
        }
        triesAgain();
    }

    @Tag("exhaustive")
    @Test
    void garbageOnThePortIsNobodysBusiness() throws IOException {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("garbageOnThePortIsNobodysBusiness: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        int port = Integer.parseInt(store.substring(store.lastIndexOf(':') + 1));
        List<Socket> sockets = new ArrayList<>();
        try (Workers workers = world(3)) {
            workers.startAll(FaultWorker.class, "allReduce", LONG);
            boolean running = false;
            for (int sent = 0; sent < 50 || !running; ) {
                sent += throwGarbage(port, random, sockets) ? 1 : 0;
                running = workers.all().stream().allMatch(w -> w.lines().contains("RUNNING"));
                assertTrue(workers.all().stream().allMatch(Worker::isAlive), "a rank has ended");
            }
            for (Worker w : workers.all()) {
                assertFalse(w.lines().stream().anyMatch(l -> l.startsWith("ERROR")));
            }
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    private static boolean throwGarbage(int port, Random random, List<Socket> sockets) {
        byte[] garbage = new byte[random.nextInt(5000)];
        random.nextBytes(garbage);
        try {
            Thread.sleep(20);
            Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
            sockets.add(socket);
            socket.getOutputStream().write(garbage);
            return true;
        } catch (IOException e) {
            // Nobody serves there yet, or they have hung up while it still wrote.
            return false;
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Two machines with a cable between them; gone with the test. */
    private static final class Machines implements AutoCloseable {
        final String here = "jccl-a" + ProcessHandle.current().pid();
        final String there = "jccl-b" + ProcessHandle.current().pid();

        /** Addresses that RFC 5737 keeps for such purposes. */
        static final String ADDRESS = "192.0.2.1";

        Machines() {
            run(true, "ip netns add " + here);
            run(true, "ip netns add " + there);
            run(
                    true,
                    "ip link add veth0 netns "
                            + here
                            + " type veth peer name veth0 netns "
                            + there);
            run(true, "ip -n " + here + " addr add " + ADDRESS + "/24 dev veth0");
            run(true, "ip -n " + there + " addr add 192.0.2.2/24 dev veth0");
            for (String machine : List.of(here, there)) {
                run(true, "ip -n " + machine + " link set lo up");
                run(true, "ip -n " + machine + " link set veth0 up");
            }
        }

        static boolean possible() {
            String name = "jccl-p" + ProcessHandle.current().pid();
            boolean made = run(false, "ip netns add " + name);
            return made && run(false, "ip netns del " + name);
        }

        void cable(String upOrDown) {
            run(true, "ip -n " + there + " link set veth0 " + upOrDown);
        }

        static boolean run(boolean must, String command) {
            try {
                Process p =
                        new ProcessBuilder(command.split(" ", -1))
                                .redirectErrorStream(true)
                                .start();
                String said = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                boolean good = p.waitFor() == 0;
                assertTrue(good || !must, () -> command + ": " + said);
                return good;
            } catch (IOException e) {
                assertFalse(must, e::toString);
                return false;
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void close() {
            run(false, "ip netns del " + here);
            run(false, "ip netns del " + there);
        }
    }

    /** Rank 0 on one machine, which serves the store, ranks 1 and 2 on the other. */
    private static void startOn(Machines machines, Workers workers) {
        workers.by("ip", "netns", "exec", machines.here);
        workers.start(0, FaultWorker.class, "allReduce", LONG);
        workers.by("ip", "netns", "exec", machines.there);
        workers.start(1, FaultWorker.class, "allReduce", LONG);
        workers.start(2, FaultWorker.class, "allReduce", LONG);
        workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
    }

    @Tag("exhaustive")
    @Test
    void linkCutForFiveSecondsIsSurvivedAndForGoodEndsAll() throws InterruptedException {
        assumeTrue(Machines.possible(), "no network namespaces: not root, or no ip here");
        String remote = "JCCL_STORE=tcp://" + Machines.ADDRESS + ":29500";
        try (Machines machines = new Machines();
                Workers workers = world(3, remote)) {
            startOn(machines, workers);
            machines.cable("down");
            Thread.sleep(5_000);
            machines.cable("up");
            Thread.sleep(5_000);
            for (Worker w : workers.all()) {
                assertTrue(w.isAlive(), w.lines()::toString);
                assertFalse(w.lines().stream().anyMatch(l -> l.startsWith("ERROR")), "gave up");
            }
            machines.cable("down");
            oneStory(IntStream.of(1, 2).mapToObj(workers.all()::get).map(Report::of).toList())
                    .is(
                            JcclException.class,
                            Machines.ADDRESS + ":29500 is lost",
                            "look at the network");
            // To rank 0 they are those that have fallen silent.
            Report.of(workers.all().getFirst())
                    .is(RankFailedException.class, "has given no sign of life");
            machines.cable("up");
            try (Workers again = world(3, remote)) {
                startOn(machines, again);
            }
        }
    }
}

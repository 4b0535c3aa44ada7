package io.jccl.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.CommunicatorOptions;
import io.jccl.engine.host.HostEngine;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.net.ConnectException;
import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The table of docs/launching.md, and what counts when several launchers' variables are set. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class LaunchEnvironmentTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final String TORCHRUN =
            "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_WORLD_SIZE=2"
                    + " MASTER_ADDR=node0 MASTER_PORT=29500";
    private static final String OPEN_MPI =
            "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_LOCAL_RANK=0"
                    + " OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=n1";
    private static final String MPICH =
            "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7";
    private static final String SLURM =
            "SLURM_PROCID=6 SLURM_NTASKS=12 SLURM_LOCALID=2 SLURM_NNODES=3 SLURM_JOB_ID=77"
                    + " SLURM_STEP_ID=0";
    private static final String POD = "JOB_COMPLETION_INDEX=1 JCCL_SIZE=3 JCCL_JOB_ID=train";

    @TempDir Path folder = Path.of("");

    private static Map<String, String> map(String variables) {
        Map<String, String> map = new TreeMap<>();
        Arrays.stream(variables.split(" ", -1))
                .map(pair -> pair.split("=", 2))
                .forEach(pair -> map.put(pair[0], pair[1]));
        return map;
    }

    private static String place(String variables) {
        LaunchEnvironment e = LaunchEnvironment.of(map(variables));
        return e.launcher()
                + ": "
                + e.rank()
                + " of "
                + e.size()
                + ", here "
                + e.localRank()
                + " of "
                + e.localSize()
                + ", machines "
                + e.machines();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "HOME=/ | none: 0 of 1, here 0 of 1, machines 1",
                TORCHRUN + " | torchrun: 5 of 8, here 1 of 4, machines 2",
                OPEN_MPI + " | Open MPI: 3 of 9, here 0 of 3, machines 3",
                MPICH + " | MPICH: 2 of 4, here 0 of 2, machines 2",
                SLURM + " | Slurm: 6 of 12, here 2 of -1, machines 3",
                POD + " | Kubernetes: 1 of 3, here 0 of 1, machines 3",
                "JOB_COMPLETION_INDEX=2 WORLD_SIZE=4 MASTER_ADDR=j-0.s MASTER_PORT=1"
                        + " | Kubernetes: 2 of 4, here 0 of 1, machines 4",
                "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=x | torchrun: 0 of 2, here -1 of -1, machines -1",
                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_JOB_ID=4"
                        + " | Slurm: 1 of 2, here -1 of 2, machines 1",
                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=4 SLURM_STEP_NUM_NODES=1"
                        + " SLURM_JOB_ID=4 | Slurm: 1 of 2, here -1 of 2, machines 1",
                // srun --mpi=pmi2
                SLURM
                        + " PMI_FD=9 PMI_JOBID=77.0 PMI_RANK=6 PMI_SIZE=12"
                        + " | Slurm: 6 of 12, here 2 of -1, machines 3",
                "OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=5 OMPI_COMM_WORLD_LOCAL_SIZE=2"
                        + " PMIX_NAMESPACE=n | Open MPI: 4 of 5, here -1 of 2, machines 3",
            })
    void eachLauncherIsUnderstood(String variables, String expected) {
        assertEquals(expected, place(variables));
    }

    @Test
    void whatTellsRunsOfMpichApart() {
        assertEquals(
                Optional.of("node:40413-0"),
                HydraJob.of(
                        List.of(
                                "--control-port",
                                "node:40413",
                                "--rmk",
                                "user",
                                "--pgid",
                                "0",
                                "--retries",
                                "10")));
        assertEquals(Optional.empty(), HydraJob.of(List.of("--pgid", "0", "--control-port")));
        assertEquals(Optional.empty(), HydraJob.of(List.of()));
    }

    /** Whoever is inside counts: the program was started by that launcher. */
    @Test
    void variablesThatSayARankWasStarted() {
        assertEquals(List.of(), LaunchEnvironment.ranksAndSizes(map("HOME=/ LOCAL_RANK=1")));
        assertEquals(
                List.of("PMI_SIZE"), LaunchEnvironment.ranksAndSizes(map("PMI_SIZE=2 HOME=/")));
        assertEquals(
                List.of("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"),
                LaunchEnvironment.ranksAndSizes(map(SLURM + " " + TORCHRUN)));
        assertEquals(
                List.of("JOB_COMPLETION_INDEX", "JCCL_SIZE"),
                LaunchEnvironment.ranksAndSizes(map(POD)));
        assertEquals(List.of(), LaunchEnvironment.ranksAndSizes(map("JOB_COMPLETION_INDEX=2")));
    }

    @Test
    void theInnermostLauncherCounts() {
        List<String> order = List.of(TORCHRUN, OPEN_MPI, MPICH, SLURM, POD);
        for (int i = 0; i < order.size(); i++) {
            for (int j = i + 1; j < order.size(); j++) {
                assertEquals(place(order.get(i)), place(order.get(j) + " " + order.get(i)));
            }
        }
        assertEquals(place(TORCHRUN), place(String.join(" ", order)));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "JOB_COMPLETION_INDEX=2 | JOB_COMPLETION_INDEX JCCL_SIZE WORLD_SIZE completions",
                "JOB_COMPLETION_INDEX=3 JCCL_SIZE=3 | JOB_COMPLETION_INDEX JCCL_SIZE",
                "WORLD_SIZE=3 | WORLD_SIZE RANK",
                "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=x LOCAL_WORLD_SIZE=3 | LOCAL_WORLD_SIZE 3 2",
                "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=x LOCAL_WORLD_SIZE=2 LOCAL_RANK=2"
                        + " | LOCAL_RANK LOCAL_WORLD_SIZE 2",
                "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=x LOCAL_RANK=x | LOCAL_RANK 'x'",
            })
    void contradictionsAreNamed(String variables, String named) {
        IllegalArgumentException error =
                assertThrows(
                        IllegalArgumentException.class, () -> LaunchEnvironment.of(map(variables)));
        String message = String.valueOf(error.getMessage());
        for (String word : named.split(" ", -1)) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {TORCHRUN, OPEN_MPI, MPICH, SLURM, POD})
    void hostEngineRefusesSeveralMachines(String variables) {
        LaunchEnvironment launch = LaunchEnvironment.of(map(variables));
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () ->
                                HostEngine.fromEnvironment(
                                        map(variables), CommunicatorOptions.DEFAULT));
        String message = String.valueOf(e.getMessage());
        for (String word :
                List.of(
                        launch.size() + " ranks",
                        launch.machines() + " machines",
                        "JCCL_ENGINE=mpi under mpirun",
                        "fromEnvironment(Cuda.device(...)")) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void meet(Map<String, String> zero, Map<String, String> one) throws Exception {
        List<Throwable> errors = new ArrayList<>();
        Thread other =
                Thread.ofPlatform()
                        .start(() -> {
                            try (Store store = LaunchEnvironment.of(one).openStore(one, PATIENCE)) {
                                assertEquals("zero", text(store.await("from-zero", PATIENCE)));
                                store.set("from-one", bytes("one"));
                            } catch (RuntimeException | Error e) {
                                errors.add(e);
                            }
                        });
        try (Store store = LaunchEnvironment.of(zero).openStore(zero, PATIENCE)) {
            store.set("from-zero", bytes("zero"));
            assertEquals("one", text(store.await("from-one", PATIENCE)));
        }
        other.join();
        assertEquals(List.of(), errors);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d",
                "MASTER_ADDR=localhost MASTER_PORT=%d",
                "MASTER_ADDR=127.0.0.1\t MASTER_PORT=%d",
                "JCCL_STORE=tcp://127.0.0.1:%d",
                "JCCL_STORE=tcp://127.0.0.1:%d MASTER_ADDR=elsewhere.invalid MASTER_PORT=1",
                "JCCL_STORE=file:%s",
                "JCCL_STORE=file://%s"
            })
    void ranksMeetWhereTheVariablesSay(String where) throws Exception {
        Object filled = where.contains("%s") ? folder.resolve("store") : Workers.freePort();
        String more = " WORLD_SIZE=2 " + String.format(where, filled);
        meet(map("RANK=0" + more), map("RANK=1" + more));
    }

    /** Of IPv6, with the brackets that JCCL_STORE needs and without. */
    @ParameterizedTest
    @ValueSource(strings = {"::1", "[::1]"})
    void ranksMeetAtAnAddressOfVersionSix(String address) throws Exception {
        assumeTrue(
                NetworkInterface.networkInterfaces()
                        .flatMap(NetworkInterface::inetAddresses)
                        .anyMatch(a -> a instanceof Inet6Address && a.isLoopbackAddress()),
                "this machine has no IPv6");
        String more = " WORLD_SIZE=2 MASTER_ADDR=" + address + " MASTER_PORT=" + Workers.freePort();
        meet(map("RANK=0" + more), map("RANK=1" + more));
    }

    @Test
    void aServerThatIsThereAlreadyIsUsed() throws Exception {
        String more = "WORLD_SIZE=2 JCCL_JOB_ID=x JCCL_STORE_SECRET=s JCCL_STORE=tcp://127.0.0.1:";
        try (StoreServer server = StoreServer.open("127.0.0.1", 0, StoreSecret.of("s"))) {
            meet(map("RANK=0 " + more + server.port()), map("RANK=1 " + more + server.port()));
        }
    }

    @Test
    void allAddressesOfThisMachineServe() throws Exception {
        InetAddress own;
        try {
            own = InetAddress.getLocalHost();
        } catch (UnknownHostException e) {
            own = InetAddress.getLoopbackAddress();
        }
        assumeTrue(own.isReachable(1000), "this machine's name leads nowhere");
        Set<String> names = new HashSet<>(List.of(own.getHostName(), own.getHostAddress()));
        for (String name : names) {
            String more =
                    " WORLD_SIZE=2 MASTER_ADDR=" + name + " MASTER_PORT=" + Workers.freePort();
            meet(map("RANK=0" + more), map("RANK=1" + more));
        }
    }

    /** Whether somebody listens there. */
    private static boolean listens(InetAddress address, int port) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(address, port), 5000);
            return true;
        } catch (ConnectException e) {
            return false;
        }
    }

    private static InetAddress outside() throws IOException {
        Optional<InetAddress> found =
                NetworkInterface.networkInterfaces()
                        .flatMap(NetworkInterface::inetAddresses)
                        .filter(a -> a instanceof Inet4Address && !a.isLoopbackAddress())
                        .findFirst();
        assumeTrue(found.isPresent(), "this machine has no address but those of its loopback");
        return found.orElseThrow();
    }

    @Test
    void rankZeroListensOnTheAddressNamedAndOnNoOther() throws IOException {
        InetAddress outside = outside();
        InetAddress loopback = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        int port = Workers.freePort();
        String more = "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=x MASTER_PORT=" + port + " MASTER_ADDR=";
        Map<String, String> env = map(more + outside.getHostAddress());
        try (Store store = LaunchEnvironment.of(env).openStore(env, PATIENCE)) {
            assertTrue(listens(outside, port), store::toString);
            assertFalse(listens(loopback, port), "reached by another address");
        }
        Map<String, String> inside = map(more + "127.0.0.1");
        try (Store store = LaunchEnvironment.of(inside).openStore(inside, PATIENCE)) {
            assertTrue(listens(loopback, port), store::toString);
            assertFalse(listens(outside, port), "reached by another address");
            assertFalse(listens(InetAddress.getByAddress(new byte[] {127, 0, 0, 2}), port));
        }
        Map<String, String> all = map(more + "0.0.0.0");
        try (Store store = LaunchEnvironment.of(all).openStore(all, PATIENCE)) {
            assertTrue(listens(loopback, port), store::toString);
            assertTrue(listens(outside, port), store::toString);
        }
    }

    /**
     * 198.51.100.1 is for documentation (RFC 5737), .invalid for names that are none (RFC 2606).
     */
    @ParameterizedTest
    @ValueSource(strings = {"198.51.100.1", "rank0.invalid"})
    void addressThatIsNotRankZerosIsNamedWithWhatToSet(String address) throws Exception {
        int port = Workers.freePort();
        String place = " WORLD_SIZE=2 JCCL_JOB_ID=x MASTER_PORT=" + port + " MASTER_ADDR=";
        Map<String, String> env = map("RANK=0" + place + address);
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () -> LaunchEnvironment.of(env).openStore(env, Duration.ofMillis(300)));
        String message = String.valueOf(e.getMessage());
        for (String word : List.of(address + ":" + port, "MASTER_ADDR", "JCCL_STORE_BIND")) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
        // What the message advises; others would come by a translated address.
        meet(
                map("JCCL_STORE_BIND=127.0.0.1 RANK=0" + place + address),
                map("RANK=1" + place + "127.0.0.1"));
    }

    /** Serves two stores, one after the other. */
    public static final class TwoStores {
        private TwoStores() {}

        /**
         * Runs as rank 0.
         *
         * @param args none
         */
        public static void main(String[] args) {
            Map<String, String> env = System.getenv();
            for (int i = 0; i < 2; i++) {
                try (Store store = LaunchEnvironment.of(env).openStore(env, PATIENCE)) {
                    store.set("key", bytes("value"));
                }
            }
            System.out.println("served");
        }
    }

    @ParameterizedTest
    @CsvSource({"'', 1"})
    void storeWithoutASecretIsWarnedOfOnce(String variable, int warnings) throws Exception {
        ProcessBuilder builder =
                new ProcessBuilder(Workers.command(List.of(), TwoStores.class))
                        .redirectError(folder.resolve("err").toFile());
        Map<String, String> env = builder.environment();
        env.keySet().removeIf(n -> n.startsWith("JCCL_STORE") || Workers.isLauncherVariable(n));
        String place = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=";
        env.putAll(map(place + Workers.freePort()));
        if (!variable.isEmpty()) {
            env.put(variable, StoreSecret.randomText());
        }
        Process process = builder.start();
        try (var out = process.inputReader()) {
            assertEquals(List.of("served"), out.lines().toList());
        } finally {
            process.destroyForcibly();
        }
        List<String> said =
                Files.readAllLines(folder.resolve("err")).stream()
                        .filter(l -> !l.contains("incubator"))
                        .toList();
        assertEquals(warnings, said.size(), said::toString);
        for (String line : said) {
            assertTrue(line.startsWith("jccl: warning: the store at tcp://127.0.0.1:"), line);
            assertTrue(line.contains("JCCL_STORE_SECRET"), line);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"JCCL_STORE_SECRET, 0"})
    void storeWithASecretIsNotWarnedOf(String variable, int warnings) throws Exception {
        storeWithoutASecretIsWarnedOfOnce(variable, warnings);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 JCCL_STORE_BIND=198.51.100.1 |"
                        + " JCCL_STORE_BIND 198.51.100.1 0.0.0.0",
                "RANK=1 WORLD_SIZE=2 JCCL_JOB_ID=x | MASTER_ADDR MASTER_PORT JCCL_STORE",
                "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=x | MASTER_ADDR:MASTER_PORT h:x",
                "RANK=0 WORLD_SIZE=2 JCCL_STORE=tcp://127.0.0.1:0 | port 0 127.0.0.1",
                "RANK=0 WORLD_SIZE=2 JCCL_STORE=file:relative | JCCL_STORE relative absolute",
                "RANK=0 WORLD_SIZE=2 JCCL_STORE=http://h | JCCL_STORE http://h",
            })
    void placesThatCannotBeAreRefused(String variables, String named) {
        Map<String, String> env = map(variables);
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> LaunchEnvironment.of(env).openStore(env, PATIENCE));
        String message = String.valueOf(e.getMessage());
        for (String word : named.split(" ", -1)) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
    }
}

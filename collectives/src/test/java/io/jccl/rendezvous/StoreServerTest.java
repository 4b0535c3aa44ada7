package io.jccl.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntSupplier;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A store over TCP among strangers, bad connections and many clients. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class StoreServerTest {
    private static final StoreSecret SECRET = StoreSecret.of("of this test");
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final StoreServer server = StoreServer.open("127.0.0.1", 0, SECRET);

    @TempDir Path folder = Path.of("");

    @AfterEach
    void close() {
        server.close();
    }

    private String address() {
        return "tcp://127.0.0.1:" + server.port();
    }

    private Store client() {
        return Store.connect(address(), SECRET, PATIENCE);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String message(Throwable e) {
        return String.valueOf(e.getMessage());
    }

    private static Throwable cause(Future<?> failed) {
        ExecutionException e = assertThrows(ExecutionException.class, failed::get);
        return Objects.requireNonNull(e.getCause());
    }

    private static long openDescriptors() throws IOException {
        try (var all = Files.list(Path.of("/proc/self/fd"))) {
            return all.count();
        }
    }

    @Tag("exhaustive")
    @Test
    void aThousandClientsMeet() throws InterruptedException {
        int clients = 1000;
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        List<Store> stores = Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            threads.add(
                    Thread.ofVirtual()
                            .start(() -> {
                                try {
                                    Store store = client();
                                    stores.add(store);
                                    if (store.add("here", 1) == clients) {
                                        store.set("all", bytes("here"));
                                    }
                                    assertArrayEquals(bytes("here"), store.await("all", PATIENCE));
                                } catch (RuntimeException | Error e) {
                                    errors.add(e);
                                }
                            }));
        }
        for (Thread t : threads) {
            t.join();
        }
        assertEquals(List.of(), List.copyOf(errors));
        assertEquals(clients, stores.size());
        try (ExecutorService closers = Executors.newVirtualThreadPerTaskExecutor()) {
            stores.forEach(s -> closers.execute(s::close));
        }
        try (Store last = client()) {
            assertEquals(clients, last.add("here", 0));
        }
    }

    @Test
    void whoHasAnotherSecretIsRefused() {
        try (Store good = client()) {
            good.set("key", bytes("value"));
            JcclException e =
                    assertThrows(
                            JcclException.class,
                            () -> Store.connect(address(), StoreSecret.of("guess"), PATIENCE));
            for (String word : List.of(address(), "secret", "JCCL_STORE_SECRET")) {
                assertTrue(message(e).contains(word), e::toString);
            }
            assertFalse(message(e).contains("guess"), "a secret in a message");
            assertArrayEquals(bytes("value"), good.get("key"));
        }
    }

    /** A server that does not know the secret learns nothing and is not believed. */
    @Test
    void serverThatDoesNotKnowTheSecretIsRefused() throws IOException, InterruptedException {
        try (ServerSocket impostor = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Thread thread = Thread.ofPlatform().start(() -> impersonate(impostor));
            JcclException e =
                    assertThrows(
                            JcclException.class,
                            () ->
                                    Store.connect(
                                            "127.0.0.1:" + impostor.getLocalPort(),
                                            SECRET,
                                            PATIENCE));
            assertTrue(message(e).contains("is not a store"), e::toString);
            thread.join();
        }
    }

    private static void impersonate(ServerSocket impostor) {
        try (Socket client = impostor.accept();
                OutputStream out = client.getOutputStream()) {
            byte[] hello = Wire.join(Wire.MAGIC, new byte[Wire.NONCE_BYTES]);
            out.write(ByteBuffer.allocate(4).putInt(0, hello.length).array());
            out.write(hello);
            InputStream in = client.getInputStream();
            byte[] said = in.readNBytes(4 + Wire.MAGIC.length + 32 + 16 + 1 + 32);
            assertFalse(
                    new String(said, StandardCharsets.ISO_8859_1).contains("of this test"),
                    "the secret was sent");
            byte[] welcome = new byte[1 + Wire.PROOF_BYTES];
            out.write(ByteBuffer.allocate(4).putInt(0, welcome.length).array());
            out.write(welcome);
            out.flush();
            in.readAllBytes();
        } catch (IOException e) {
            // The client has left.
        }
    }

    private enum Garbage {
        HTTP,
        ZEROES,
        ONES,
        RANDOM,
        NOTHING,
        HALF_A_LENGTH,
        RIGHT_MAGIC_ALONE,
        WRONG_PROOF
    }

    private static byte[] garbage(Garbage kind, Random random) {
        byte[] much = new byte[100_000];
        return switch (kind) {
            case HTTP -> bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
            case ZEROES -> much;
            case ONES -> {
                Arrays.fill(much, (byte) -1);
                yield much;
            }
            case RANDOM -> {
                random.nextBytes(much);
                yield much;
            }
            case NOTHING -> new byte[0];
            case HALF_A_LENGTH -> new byte[] {0, 0};
            case RIGHT_MAGIC_ALONE -> Wire.join(new byte[] {0, 0, 0, 8}, Wire.MAGIC);
            case WRONG_PROOF ->
                    Wire.join(new byte[] {0, 0, 0, 89}, Wire.MAGIC, new byte[32 + 16 + 1 + 32]);
        };
    }

    @ParameterizedTest
    @EnumSource
    void garbageHarmsNobody(Garbage kind) throws IOException {
        harm(kind, 50);
    }

    @ParameterizedTest
    @EnumSource
    @Tag("exhaustive")
    void muchGarbageHarmsNobody(Garbage kind) throws IOException {
        harm(kind, 1000);
    }

    private void harm(Garbage kind, int times) throws IOException {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("garbageHarmsNobody " + kind + ": -Djccl.seed=" + seed);
        Random random = new Random(seed);
        List<Socket> sockets = new ArrayList<>();
        try (Store good = client()) {
            for (int i = 0; i < times; i++) {
                Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
                sockets.add(socket);
                try {
                    socket.getOutputStream().write(garbage(kind, random));
                } catch (IOException e) {
                    // Disconnected while it still wrote: as it should be.
                }
                assertEquals(i + 1, good.add("count", 1));
            }
            try (Store another = client()) {
                assertEquals(times, another.add("count", 0));
            }
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    /** Who is too slow to say who it is, is disconnected; one that reads slowly is too. */
    @Tag("exhaustive")
    @Test
    void strangersThatTakeTheirTimeAreDisconnected() throws Exception {
        try (Socket silent = new Socket(InetAddress.getLoopbackAddress(), server.port());
                Socket dripping = new Socket(InetAddress.getLoopbackAddress(), server.port());
                Store good = client()) {
            Thread drip =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                try {
                                    for (byte b : new byte[] {0, 0, 0, 89, 'J', 'C', 'C', 'L'}) {
                                        dripping.getOutputStream().write(b);
                                        Thread.sleep(1000);
                                    }
                                } catch (IOException | InterruptedException e) {
                                    // Disconnected.
                                }
                            });
            for (Socket socket : List.of(silent, dripping)) {
                socket.setSoTimeout(30_000);
                InputStream in = socket.getInputStream();
                byte[] all = readToEnd(in);
                assertEquals(4 + Wire.MAGIC.length + Wire.NONCE_BYTES, all.length);
            }
            good.set("key", bytes("value"));
            drip.join();
        }
    }

    /**
     * Strangers who say nothing, half of a greeting and no more, one byte at a time, or who close
     * their end of the connection: meanwhile clients are served, and come anew.
     */
    @Test
    @Tag("exhaustive")
    void thousandsOfSlowStrangersDelayNobody() throws Exception {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("StoreServerTest.slowStrangers: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        byte[] greeting = garbage(Garbage.WRONG_PROOF, random);
        for (int round = 0; round < 3; round++) {
            List<Socket> strangers = new ArrayList<>();
            try (Store good = client()) {
                List<Socket> dripping = new ArrayList<>();
                for (int i = 0; i < 3000; i++) {
                    Socket stranger = new Socket(InetAddress.getLoopbackAddress(), server.port());
                    strangers.add(stranger);
                    stranger.setSoTimeout(30_000);
                    int said = random.nextInt(greeting.length);
                    switch (random.nextInt(4)) {
                        case 0 -> {
                            // silent
                        }
                        case 1 -> stranger.getOutputStream().write(greeting, 0, said);
                        case 2 -> dripping.add(stranger);
                        default -> {
                            stranger.getOutputStream().write(greeting, 0, said);
                            stranger.shutdownOutput();
                        }
                    }
                    if (i % 10 == 0) {
                        good.set("key" + i, bytes("value" + i));
                    }
                }
                for (int at = 0; !dripping.isEmpty() && at < greeting.length - 1; at++) {
                    byte next = greeting[at];
                    dripping.removeIf(stranger -> !reaches(stranger, next));
                    try (Store another = client()) {
                        assertEquals(at + 1, another.add("count" + round, 1));
                    }
                    assertArrayEquals(
                            bytes("value" + at / 10 * 10), good.get("key" + at / 10 * 10));
                    Thread.sleep(100);
                }
                assertEquals(List.of(), dripping, "strangers that are heard for ever");
                for (Socket stranger : strangers) {
                    byte[] heard = readToEnd(stranger.getInputStream());
                    assertTrue(heard.length <= 4 + Wire.MAGIC.length + Wire.NONCE_BYTES);
                }
                good.set("last", bytes("value"));
            } finally {
                for (Socket stranger : strangers) {
                    stranger.close();
                }
            }
        }
    }

    /** Whether the other end still takes a byte. */
    private static boolean reaches(Socket socket, byte next) {
        try {
            socket.getOutputStream().write(next);
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    private static byte[] readToEnd(InputStream in) throws IOException {
        byte[] all = new byte[1000];
        int length = 0;
        try {
            for (int n = in.read(all); n > 0; n = in.read(all, length, all.length - length)) {
                length += n;
            }
        } catch (SocketTimeoutException e) {
            throw e;
        } catch (IOException e) {
            // Reset, since something unread was left: an end too.
        }
        return Arrays.copyOf(all, length);
    }

    @Test
    void serverThatComesLateIsFound() throws Exception {
        int port = server.port();
        server.close();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Store> early = threads.submit(() -> client());
            Thread.sleep(300);
            assertFalse(early.isDone());
            try (StoreServer late = StoreServer.open("127.0.0.1", port, SECRET);
                    Store store = early.get()) {
                store.set("key", bytes("value"));
                assertEquals(port, late.port());
            }
        }
    }

    @Test
    void serverThatNeverComesIsNamed() {
        server.close();
        JcclTimeoutException e =
                assertThrows(
                        JcclTimeoutException.class,
                        () -> Store.connect(address(), SECRET, Duration.ofMillis(300)));
        assertTrue(message(e).contains(address()), e::toString);
        assertTrue(message(e).contains("refused"), e::toString);
    }

    @Test
    void hostThatIsUnknownIsNamed() {
        JcclTimeoutException e =
                assertThrows(
                        JcclTimeoutException.class,
                        () ->
                                Store.connect(
                                        "tcp://no-such-host.invalid:1234",
                                        SECRET,
                                        Duration.ofMillis(300)));
        assertTrue(message(e).contains("no-such-host.invalid:1234"), e::toString);
    }

    /**
     * The JVM asks a file in place of DNS, which does not answer as long as it is an empty pipe.
     */
    @Test
    void resolverThatDoesNotAnswerIsNamedAndNotWaitedFor() throws Exception {
        Path hosts = folder.resolve("hosts");
        Process mkfifo = new ProcessBuilder("mkfifo", hosts.toString()).start();
        assumeTrue(mkfifo.waitFor() == 0, "there is no mkfifo");
        List<String> flags = List.of("-Djdk.net.hosts.file=" + hosts);
        try (Workers workers = new Workers(1, Workers.newJobId(), flags, Map.of())) {
            workers.startAll(LookUpWorker.class, hosts.toString());
            Workers.Worker worker = workers.all().getFirst();
            assertEquals(0, worker.join(PATIENCE), worker.lines()::toString);
            assertEquals(
                    List.of(
                            "no store was found at tcp://node0:1 within PT0.3S (the name 'node0' is"
                                    + " still being looked up; does this machine's DNS answer?): is"
                                    + " the process that serves it running (rank 0, or jccl store),"
                                    + " is the address right, and does a firewall let it through?",
                            "still looking up",
                            "left: false"),
                    worker.lines());
        }
    }

    @Test
    void whatTheServerLostEndsItsClients() {
        try (Store store = client()) {
            store.set("key", bytes("value"));
            int port = server.port();
            server.close();
            // A server of the same secret and address, but an empty one.
            try (StoreServer other = StoreServer.open("127.0.0.1", port, SECRET)) {
                JcclException e = assertThrows(JcclException.class, () -> store.get("key"));
                assertTrue(message(e).contains("was restarted"), e::toString);
                assertThrows(JcclException.class, () -> store.set("key", bytes("value")));
                assertEquals(port, other.port());
            }
        }
    }

    @Test
    void serverThatEndsIsNamedByAllWhoWait() throws Exception {
        try (Store one = client();
                Store two = client();
                ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            one.set("key", bytes("value"));
            List<Future<byte[]>> waiting =
                    List.of(
                            threads.submit(() -> one.await("never", Duration.ofMinutes(10))),
                            threads.submit(() -> two.await("never", Duration.ofMinutes(10))));
            Thread.sleep(50);
            server.close();
            for (Future<byte[]> w : waiting) {
                Throwable e = cause(w);
                assertTrue(e instanceof JcclException, e::toString);
                assertTrue(message(e).contains(address() + " is lost"), e::toString);
                assertTrue(message(e).contains("has ended"), e::toString);
            }
        }
    }

    @Test
    void closedStoreSaysSo() {
        Store store = client();
        store.close();
        store.close();
        assertThrows(IllegalStateException.class, () -> store.get("key"));
        assertThrows(IllegalStateException.class, () -> store.await("key", Duration.ofSeconds(1)));
    }

    @Test
    void closingEndsThoseWhoWait() throws Exception {
        Store store = client();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<byte[]> waiting =
                    threads.submit(() -> store.await("never", Duration.ofMinutes(10)));
            Thread.sleep(50);
            store.close();
            Throwable e = cause(waiting);
            assertTrue(e instanceof IllegalStateException, e::toString);
        }
    }

    /** Many waits that end in vain, then a value for all: nothing piles up, nothing is mixed up. */
    @Test
    void waitsThatEndedInVainAreForgotten() {
        try (Store store = client()) {
            for (int i = 0; i < 200; i++) {
                assertThrows(
                        JcclTimeoutException.class,
                        () -> store.await("later", Duration.ofNanos(1)));
                assertEquals(i + 1, store.add("count", 1));
            }
            store.set("later", bytes("value"));
            assertArrayEquals(bytes("value"), store.await("later", PATIENCE));
            assertNull(store.get("never"));
        }
    }

    @Test
    void descriptorsAreGivenBack() throws Exception {
        assumeTrue(Files.isDirectory(Path.of("/proc/self/fd")), "no /proc here");
        for (int i = 0; i < 3; i++) {
            cycle();
        }
        // Other tests of this JVM open and close files too.
        long more = 20;
        for (int round = 0; round < 5 && more >= 20; round++) {
            long before = openDescriptors();
            for (int i = 0; i < 40; i++) {
                cycle();
            }
            more = openDescriptors() - before;
        }
        assertTrue(more < 20, more + " more descriptors each time");
    }

    private static void cycle() throws IOException {
        try (StoreServer s = StoreServer.open(null, 0, SECRET);
                Store store = Store.connect("localhost:" + s.port(), SECRET, PATIENCE);
                Socket stranger = new Socket(InetAddress.getLoopbackAddress(), s.port())) {
            stranger.getOutputStream().write(1);
            store.set("key", bytes("value"));
            assertThrows(
                    JcclException.class,
                    () ->
                            Store.connect(
                                    "127.0.0.1:" + s.port(), StoreSecret.of("wrong"), PATIENCE));
        }
    }

    @Test
    void addressesOfVersion6Work() throws Exception {
        boolean has =
                NetworkInterface.networkInterfaces()
                        .flatMap(NetworkInterface::inetAddresses)
                        .anyMatch(a -> a instanceof Inet6Address && a.isLoopbackAddress());
        assumeTrue(has, "no IPv6 here");
        try (StoreServer six = StoreServer.open("::1", 0, SECRET);
                Store store = Store.connect("tcp://[::1]:" + six.port(), SECRET, PATIENCE)) {
            store.set("key", bytes("value"));
            assertTrue(store.toString().contains("[::1]:" + six.port()), store::toString);
        }
    }

    /** localhost often is ::1 as well as 127.0.0.1; the server listens on one of them alone. */
    @Test
    void allAddressesOfANameAreTried() {
        try (Store store = Store.connect("tcp://localhost:" + server.port(), SECRET, PATIENCE)) {
            store.set("key", bytes("value"));
        }
    }

    @Test
    void portThatIsTakenIsNamed() {
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () -> StoreServer.open("127.0.0.1", server.port(), SECRET));
        assertTrue(message(e).contains(":" + server.port()), e::toString);
        assertTrue(message(e).contains("in use"), e::toString);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "host",
                "host:",
                ":1",
                "host:x",
                "host:65536",
                "host:-1",
                "::1:80",
                "http://h:1",
                "tcp://h:1/path",
                "tcp://a b:1",
                "h:0"
            })
    void addressesThatCannotBeAreRefused(String address) {
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> Store.connect(address, SECRET, PATIENCE));
        assertTrue(message(e).contains(address), e::toString);
    }

    @Test
    void addressThatIsNotOfThisMachineIsNamed() {
        for (String host : List.of("198.51.100.1", "no-such-host.invalid")) {
            JcclException e =
                    assertThrows(JcclException.class, () -> StoreServer.open(host, 0, SECRET));
            assertTrue(message(e).contains("'" + host + "' is"), e::toString);
            assertTrue(message(e).contains("0.0.0.0 for all"), e::toString);
            assertFalse(message(e).contains("choose a port"), e::toString);
        }
    }

    @Test
    void randomSecretsDiffer() {
        String one = StoreSecret.randomText();
        assertTrue(one.matches("[0-9a-f]{64}"), one);
        assertFalse(one.equals(StoreSecret.randomText()), "twice the same");
        assertTrue(StoreSecret.isIn(Map.of("JCCL_STORE_SECRET_FILE", "f")));
        assertFalse(StoreSecret.isIn(Map.of("JCCL_STORE", "tcp://h:1")));
    }

    @Test
    void secretsComeFromTheEnvironment() throws IOException {
        Path file = folder.resolve("secret");
        Files.writeString(file, "  from a file \n");
        byte[] expected = StoreSecret.of("from a file").prove("x");
        assertArrayEquals(
                expected,
                StoreSecret.fromEnvironment(Map.of("JCCL_STORE_SECRET_FILE", file.toString()), "j")
                        .prove("x"));
        assertArrayEquals(
                expected,
                StoreSecret.fromEnvironment(
                                Map.of(
                                        "JCCL_STORE_SECRET",
                                        "from a file",
                                        "JCCL_STORE_SECRET_FILE",
                                        "/nowhere"),
                                "j")
                        .prove("x"));
        StoreSecret one = StoreSecret.fromEnvironment(Map.of(), "one");
        assertFalse(
                Arrays.equals(
                        one.prove("x"), StoreSecret.fromEnvironment(Map.of(), "two").prove("x")));
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () ->
                                StoreSecret.fromEnvironment(
                                        Map.of("JCCL_STORE_SECRET_FILE", "/no/such/file"), "j"));
        assertTrue(message(e).contains("/no/such/file"), e::toString);
        assertThrows(
                IllegalArgumentException.class,
                () -> StoreSecret.fromEnvironment(Map.of("JCCL_STORE_SECRET", " "), "j"));
    }

    /**
     * A cable between clients and server. It can be cut without either end being told, and it can
     * break connections after a number of chunks, however long those take.
     */
    private static final class Cable implements AutoCloseable {
        private final ServerSocket listening;
        private final int to;
        private final IntSupplier chunksPerConnection;
        private final List<Socket> sockets = Collections.synchronizedList(new ArrayList<>());
        private final AtomicInteger broken = new AtomicInteger();
        private volatile CountDownLatch whole = new CountDownLatch(0);

        Cable(int to) throws IOException {
            this(to, () -> Integer.MAX_VALUE);
        }

        Cable(int to, IntSupplier chunksPerConnection) throws IOException {
            this.to = to;
            this.chunksPerConnection = chunksPerConnection;
            this.listening = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
            Thread.ofPlatform().daemon().start(this::accept);
        }

        int port() {
            return listening.getLocalPort();
        }

        /** Connections broken so far. */
        int broken() {
            return broken.get();
        }

        private void accept() {
            while (!listening.isClosed()) {
                try {
                    Socket client = listening.accept();
                    Socket server = new Socket();
                    sockets.addAll(List.of(client, server));
                    connect(client, server);
                } catch (IOException e) {
                    // Closed.
                }
            }
        }

        private void connect(Socket client, Socket server) {
            try {
                server.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), to));
            } catch (IOException e) {
                // The server is away.
                reset(client);
                return;
            }
            AtomicInteger left = new AtomicInteger(chunksPerConnection.getAsInt());
            Thread.ofPlatform().daemon().start(() -> carry(client, server, left));
            Thread.ofPlatform().daemon().start(() -> carry(server, client, left));
        }

        private void carry(Socket from, Socket into, AtomicInteger left) {
            try (from;
                    into) {
                byte[] b = new byte[8192];
                for (int n = from.getInputStream().read(b); n >= 0; ) {
                    whole.await();
                    if (left.decrementAndGet() == 0) {
                        // A part arrives.
                        into.getOutputStream().write(b, 0, n / 2);
                        broken.incrementAndGet();
                        reset(from);
                        reset(into);
                        return;
                    }
                    into.getOutputStream().write(b, 0, n);
                    n = from.getInputStream().read(b);
                }
            } catch (IOException | InterruptedException e) {
                // one end has closed
            }
        }

        void cut() {
            whole = new CountDownLatch(1);
        }

        void mend() {
            whole.countDown();
        }

        /** What was under way when the connections were reset is lost. */
        void reset() {
            for (Socket s : sockets.toArray(Socket[]::new)) {
                reset(s);
                sockets.remove(s);
            }
        }

        private static void reset(Socket s) {
            try (s) {
                s.setSoLinger(true, 0);
            } catch (IOException e) {
                // Closed already.
            }
        }

        @Override
        public void close() throws IOException {
            mend();
            listening.close();
            reset();
        }
    }

    /** Whatever is lost, each addition counts once and each wait ends. */
    @Tag("exhaustive")
    @Test
    void lostConnectionsLoseAndRepeatNothing() throws Exception {
        int clients = 4;
        int times = 300;
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("lostConnectionsLoseAndRepeatNothing: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        // The first chunks are the greeting's: some connections break in it.
        try (Cable cable = new Cable(server.port(), () -> random.nextInt(1, 40));
                ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            String through = "127.0.0.1:" + cable.port();
            List<Future<?>> all = new ArrayList<>();
            for (int c = 0; c < clients; c++) {
                int me = c;
                all.add(
                        threads.submit(() -> {
                            try (Store store = Store.connect(through, SECRET, PATIENCE)) {
                                for (int i = 0; i < times; i++) {
                                    store.add("count", 1);
                                    String key = "client-" + me + "-" + i;
                                    // Repeated, it would find its own value and fail.
                                    assertTrue(store.compareAndSet(key, null, bytes("mine")));
                                }
                                store.add("done", 1);
                                store.await("end", PATIENCE);
                            }
                        }));
            }
            try (Store direct = client()) {
                while (direct.add("done", 0) < clients && all.stream().noneMatch(Future::isDone)) {
                    Thread.sleep(30);
                }
                cable.reset();
                direct.set("end", bytes("now"));
                for (Future<?> f : all) {
                    f.get();
                }
                assertEquals((long) clients * times, direct.add("count", 0));
            }
            // Two requests a time, of two chunks each, and at most 39 chunks a connection.
            assertTrue(cable.broken() >= 4 * clients * times / 40, () -> cable.broken() + " broke");
        }
    }

    /** Neither end is told that the link is cut; requests made meanwhile are answered later. */
    @Test
    void linkThatIsCutForFiveSecondsIsSurvived() throws Exception {
        cutFor5Seconds(1);
    }

    @Test
    @Tag("exhaustive")
    void hundredsOfCutLinksDelayNobody() throws Exception {
        cutFor5Seconds(500);
    }

    private void cutFor5Seconds(int clients) throws Exception {
        List<Store> stores = new ArrayList<>();
        try (Cable cable = new Cable(server.port());
                ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
                Store direct = client()) {
            List<Future<byte[]>> waiting = new ArrayList<>();
            for (int i = 0; i < clients; i++) {
                Store store = Store.connect("127.0.0.1:" + cable.port(), SECRET, PATIENCE);
                stores.add(store);
                waiting.add(threads.submit(() -> store.await("late", PATIENCE)));
            }
            Thread.sleep(50);
            cable.cut();
            List<Future<Long>> counting = new ArrayList<>();
            stores.forEach(s -> counting.add(threads.submit(() -> s.add("count", 5))));
            direct.set("late", bytes("value"));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
            for (int i = 1; System.nanoTime() - end < 0; i++) {
                assertEquals(i, direct.add("meanwhile", 1));
                Thread.sleep(5);
            }
            assertFalse(counting.stream().anyMatch(Future::isDone));
            assertFalse(waiting.stream().anyMatch(Future::isDone));
            cable.mend();
            List<Long> counts = new ArrayList<>();
            for (Future<Long> f : counting) {
                counts.add(f.get());
            }
            assertEquals(
                    LongStream.rangeClosed(1, clients).map(i -> 5 * i).boxed().toList(),
                    counts.stream().sorted().toList());
            for (Future<byte[]> f : waiting) {
                assertArrayEquals(bytes("value"), f.get());
            }
            assertEquals(5L * clients, direct.add("count", 0));
            stores.forEach(s -> threads.execute(s::close));
        }
    }
}

package io.jccl.cli.launch;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.cli.Main;
import io.jccl.cli.shell.StandardWriter;
import io.jccl.testkit.Workers;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FilterWriter;
import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.spi.ToolProvider;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Order(1)
@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
public class RunCommandTest {
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int run(String... arguments) {
        return Main.execute(
                "run",
                new RunCommand(jccl -> jccl ? jccl() : List.of(modulePath()), Main.listed()),
                arguments,
                new PrintWriter(out),
                new PrintWriter(err));
    }

    /**
     * This JVM's classes, whether they are modules or not; without vectors, whose operations are
     * calls in the quick compiler.
     */
    public static List<String> jccl() {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        List<String> command = new ArrayList<>(List.of(java));
        command.addAll(Workers.SHORT_LIVED);
        String modules = System.getProperty("jdk.module.path", "");
        command.addAll(
                modules.isEmpty()
                        ? List.of(
                                "-cp", System.getProperty("java.class.path"), Main.class.getName())
                        : List.of("-p", modules, "-m", "io.jccl.bench/" + Main.class.getName()));
        return command;
    }

    @Tag("exhaustive")
    @Test
    void processesMakeOneTable() {
        int status =
                run(
                        "-n",
                        "3",
                        "all_reduce",
                        "-b",
                        "1K",
                        "-e",
                        "4K",
                        "-f",
                        "2",
                        "-w",
                        "0",
                        "-n",
                        "2");
        assertEquals(0, status, err::toString);
        String text = out.toString();
        assertTrue(text.contains("host/processes"), text);
        assertEquals(3, text.lines().filter(l -> !l.startsWith("#")).count(), text);
        assertFalse(text.contains("[1]"), text);
        assertTrue(text.contains("# Out of bounds values : 0 OK"), text);
    }

    @Test
    void namesTheRankThatFailedFirst() {
        assertEquals(2, run("-n", "2", "barrier", "-n", "none"));
        String text = err.toString();
        assertTrue(text.contains("failed first, with status 2"), text);
        assertTrue(text.contains("[1] jccl barrier: "), text);
    }

    @Test
    void endsTheOthersAfterAFailure() {
        // Rank 1 fails; the others would sleep on, and have children that would as well.
        String script =
                """
                if [ $RANK = 1 ]; then sleep 1; exit 3; fi
                sleep 600 &
                echo "pid $$"
                echo "pid $!"
                wait
                """;
        int status = runShell(script, "-n", "2", "--grace", "1");
        assertEquals(3, status, err::toString);
        assertTrue(err.toString().contains("rank 1 failed first, with status 3"), err::toString);
        assertTrue(err.toString().contains("ended 1 more rank that did not stop"), err::toString);
        List<Long> pids =
                out.toString()
                        .lines()
                        .filter(l -> l.contains("pid "))
                        .map(l -> Long.parseLong(l.substring(l.indexOf("pid ") + 4)))
                        .toList();
        assertEquals(2, pids.size(), out::toString);
        for (long pid : pids) {
            assertTrue(ProcessHandle.of(pid).stream().noneMatch(ProcessHandle::isAlive));
        }
    }

    /** Their output is read after they have been asked to end, not before. */
    @Test
    void theLastWordsOfRanksThatAreEndedAreForwarded(@TempDir Path folder) {
        String script =
                """
                if [ $RANK = 0 ]; then
                    while [ ! -e "$READY" ]; do sleep 0.01; done
                    exit 255
                fi
                trap 'echo last words; exit' TERM
                : > "$READY"
                sleep 600 &
                wait
                """;
        Writer slow =
                new FilterWriter(out) {
                    @Override
                    public void write(String s, int from, int count) throws IOException {
                        try {
                            Thread.sleep(300);
                        } catch (InterruptedException e) {
                            throw new IOException(e);
                        }
                        super.write(s, from, count);
                    }
                };
        String ready = "READY=" + folder.resolve("ready");
        assertEquals(
                255,
                runShell(script, new PrintWriter(slow), "-n", "2", "--grace", "0", "-x", ready));
        assertEquals("[1] last words\n", out.toString());
        // Not a signal: there are 64 of them.
        assertTrue(
                err.toString().contains("rank 0 failed first, with status 255\n"), err::toString);
    }

    @ParameterizedTest
    @CsvSource({"-n, false, true"})
    void linesSayWhoseTheyAre(String option, boolean zero, boolean one) {
        List<String> options = new ArrayList<>(List.of("-n", "2"));
        if (!option.equals("-n")) {
            options.add(option);
        }
        int status = runShell("echo \"rank $RANK\"", options.toArray(String[]::new));
        assertEquals(0, status, err::toString);
        List<String> lines = out.toString().lines().sorted().toList();
        assertTrue(lines.contains((zero ? "[0] " : "") + "rank 0"), lines::toString);
        assertTrue(lines.contains((one ? "[1] " : "") + "rank 1"), lines::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"--prefix, true, true", "--no-prefix, false, false"})
    void linesSayWhoseTheyAreInMoreCases(String option, boolean zero, boolean one) {
        linesSayWhoseTheyAre(option, zero, one);
    }

    /** As java itself takes it. */
    @Tag("exhaustive")
    @Test
    void aProgramMayBeOneSourceFile(@TempDir Path folder) throws IOException {
        Path program = folder.resolve("Say.java");
        Files.writeString(
                program,
                """
                public class Say {
                    public static void main(String[] args) {
                        System.out.println(args[0] + System.getenv("RANK"));
                    }
                }
                """);
        assertEquals(0, run("-n", "1", "--", program.toString(), "rank "), err::toString);
        assertEquals("rank 0\n", out.toString());
    }

    @Test
    void argumentsOfTheProgramThatBeginWithAtAreLeftAsTheyAre(@TempDir Path folder)
            throws IOException {
        Path file = folder.resolve("words");
        Files.writeString(file, "other words");
        String[] arguments = {"-n", "1", "--", "-c", "echo $0 $1", "@" + file, "@@x"};
        int status =
                Main.execute(
                        "run",
                        new RunCommand(jccl -> List.of("/bin/sh"), List.of("-c")),
                        arguments,
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(0, status, err::toString);
        assertEquals("@" + file + " @@x\n", out.toString());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void eachJobHasASecretOfItsOwnThatNobodyCanGuess(int ranks, @TempDir Path folder)
            throws IOException {
        String program =
                """
                import io.jccl.rendezvous.LaunchEnvironment;
                import io.jccl.rendezvous.Store;
                import io.jccl.rendezvous.StoreSecret;
                import io.jccl.rendezvous.StoreServer;
                import java.nio.file.Files;
                import java.nio.file.Path;
                import java.time.Duration;
                import java.util.Map;

                public class Secrets {
                    public static void main(String[] args) throws Exception {
                        String secret = System.getenv("JCCL_STORE_SECRET");
                        String line = Files.readString(Path.of("/proc/self/cmdline"));
                        System.out.println("secret " + secret + " " + line.contains("" + secret));
                        String job = LaunchEnvironment.current().jobId();
                        StoreSecret ours = StoreSecret.fromEnvironment(System.getenv(), job);
                        // All that a stranger can know.
                        StoreSecret guess = StoreSecret.fromEnvironment(Map.of(), job);
                        Duration patience = Duration.ofSeconds(60);
                        try (StoreServer server = StoreServer.open("127.0.0.1", 0, ours)) {
                            String at = "tcp://127.0.0.1:" + server.port();
                            Store.connect(at, ours, patience).close();
                            Store.connect(at, guess, patience).close();
                            System.out.println("guessed");
                        } catch (RuntimeException e) {
                            System.out.println(e.getMessage().contains("secret") ? "refused" : "" + e);
                        }
                    }
                }
                """;
        for (int job = 0; job < 2; job++) {
            int status = runCompiled(folder, "Secrets", program, "-n", "" + ranks, "--no-prefix");
            assertEquals(0, status, err::toString);
        }
        Map<String, Long> lines =
                out.toString()
                        .lines()
                        .collect(Collectors.groupingBy(l -> l, Collectors.counting()));
        assertEquals(2L * ranks, lines.getOrDefault("refused", 0L), out::toString);
        List<String> secrets = lines.keySet().stream().filter(l -> l.contains(" ")).toList();
        assertEquals(2, secrets.size(), out::toString);
        for (String s : secrets) {
            assertTrue(s.matches("secret [0-9a-f]{64} false"), out::toString);
            assertEquals(ranks, lines.get(s), out::toString);
        }
        assertFalse(err.toString().contains("has no secret"), err::toString);
    }

    /**
     * Runs a script of sh where the launcher would start jccl: for what concerns the launcher
     * alone, in a hundredth of a JVM's time.
     */
    private int runShell(String script, String... options) {
        return runShell(script, new PrintWriter(out), options);
    }

    private int runShell(String script, PrintWriter to, String... options) {
        List<String> arguments = new ArrayList<>(List.of(options));
        arguments.addAll(List.of("--", "-c", script));
        return Main.execute(
                "run",
                new RunCommand(jccl -> List.of("/bin/sh"), List.of("-c")),
                arguments.toArray(String[]::new),
                to,
                new PrintWriter(err));
    }

    /** Runs the body of a program's main. */
    private int runProgram(Path folder, String body, String... options) throws IOException {
        String program =
                """
                public class Prog {
                    static String env(String name) { return System.getenv(name); }
                    public static void main(String[] args) throws Exception {
                        %s
                    }
                }
                """
                        .formatted(body);
        return runCompiled(folder, "Prog", program, options);
    }

    private int runCompiled(Path folder, String name, String source, String... options)
            throws IOException {
        List<String> arguments = new ArrayList<>(List.of(options));
        arguments.add("--");
        arguments.addAll(compiled(folder, name, source));
        return Main.execute(
                "run",
                new RunCommand(jccl -> List.of(modulePath()), Main.listed()),
                arguments.toArray(String[]::new),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private static List<String> compiled(Path folder, String name, String source)
            throws IOException {
        List<String> arguments = new ArrayList<>(Workers.SHORT_LIVED);
        Path file = folder.resolve(name + ".java");
        arguments.addAll(compiled(folder, Files.writeString(file, source)));
        return arguments;
    }

    /** Java's arguments for a program that is compiled here once, and not by each rank. */
    static List<String> compiled(Path folder, Path source) {
        ToolProvider javac = ToolProvider.findFirst("javac").orElseThrow();
        StringWriter said = new StringWriter();
        PrintWriter to = new PrintWriter(said);
        String[] flags = {"-nowarn", "-cp", modulePath(), "-d", folder.toString(), "" + source};
        assertEquals(0, javac.run(to, to, flags), said::toString);
        String main = ("" + source.getFileName()).replace(".java", "");
        return List.of("-cp", folder.toString(), main);
    }

    /** The JVM's line on incubator modules goes, which a flag of the launcher brought about. */
    @Tag("exhaustive")
    @Test
    void programsAreSilentOnStandardErrorUnlessTheySaySomething(@TempDir Path folder)
            throws IOException {
        String line = "WARNING: Using incubator modules: jdk.incubator.vector\n";
        for (String text : List.of("", "own\n" + line, line)) {
            err.getBuffer().setLength(0);
            String body = "System.err.print(env(\"TEXT\"));";
            assertEquals(0, runProgram(folder, body, "-n", "1", "-x", "TEXT=" + text));
            assertEquals(text, err.toString());
        }
    }

    @Test
    void variablesTimesAndLogs(@TempDir Path folder) throws IOException {
        Path logs = folder.resolve("the logs");
        String script =
                """
                [ -n "$PATH" ] && echo "$SAY with a path of $RANK"
                echo "error of $RANK" >&2
                """;
        String[] options = {
            "-n", "2", "-x", "SAY=a=b", "-x", "PATH", "--timestamps", "--log-dir", logs.toString()
        };
        for (int times = 1; times <= 2; times++) {
            assertEquals(0, runShell(script, options), err::toString);
            String time = "[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3} ";
            List<String> lines = out.toString().lines().toList();
            assertTrue(
                    lines.stream().anyMatch(l -> l.matches(time + "a=b with a path of 0")),
                    lines::toString);
            assertTrue(
                    lines.stream().anyMatch(l -> l.matches(time + "\\[1\\] a=b with a path of 1")),
                    lines::toString);
            for (int rank = 0; rank < 2; rank++) {
                // What an earlier run has written stays.
                List<String> said = Files.readAllLines(logs.resolve("rank-" + rank + ".out"));
                assertEquals(times, said.size(), said::toString);
                assertTrue(
                        said.getLast().matches(time + "a=b with a path of " + rank),
                        said::toString);
                List<String> errors = Files.readAllLines(logs.resolve("rank-" + rank + ".err"));
                assertTrue(errors.getLast().matches(time + "error of " + rank), errors::toString);
            }
        }
    }

    @Test
    void aLogThatCannotBeWrittenIsReportedOnceAndTheOutputGoesOn(@TempDir Path logs)
            throws IOException {
        Path full = Files.createSymbolicLink(logs.resolve("rank-0.out"), Path.of("/dev/full"));
        String[] options = {"-n", "1", "--log-dir", logs.toString()};
        assertEquals(0, runShell("echo 1; echo 2; echo 3", options), err::toString);
        Files.delete(full);
        assertEquals("1\n2\n3\n", out.toString());
        String text = err.toString();
        assertTrue(text.startsWith("jccl run: rank-0.out is not written any more: "), text);
        assertEquals(1, text.lines().count(), text);
    }

    @Test
    void theReasonWhyARankCannotBeStartedIsOneLine() {
        String first = "Bad file descriptor, error: 24 (Too many open files)";
        assertEquals(
                first + "; raise ulimit -n",
                RankProcesses.reason(new IOException(first + " \nPossible reasons:\n")));
        assertEquals("error=2", RankProcesses.reason(new IOException("error=2")));
        String threads = "unable to create native thread";
        assertEquals(
                threads + "; raise ulimit -u, and a container's limit of processes",
                RankProcesses.reason(new OutOfMemoryError(threads)));
    }

    /** Neither the charset of the system nor a carriage return changes it. */
    @Test
    void outputIsForwardedByteForByte(@TempDir Path logs) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintWriter to = new StandardWriter(new PrintStream(bytes, false, US_ASCII));
        String script = "printf 'caf\\351 \\303\\251\\r50%%\\r100%%\\r\\nno end'";
        assertEquals(0, runShell(script, to, "-n", "1", "--log-dir", logs.toString()));
        String expected = "caf\u00e9 \u00c3\u00a9\r50%\r100%\r\nno end";
        // Another rank's line may follow there.
        assertEquals(expected + "\n", bytes.toString(ISO_8859_1));
        assertEquals(expected, Files.readString(logs.resolve("rank-0.out"), ISO_8859_1));
    }

    /** A line may be larger than what is forwarded at once: only its beginning is marked. */
    @Test
    void longLinesAreWhole() {
        String script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end";
        assertEquals(0, runShell(script, "-n", "1", "--prefix"), err::toString);
        assertEquals("[0] " + "x".repeat(3_000_000) + "\n[0] end\n", out.toString());
    }

    /** Longer than what has printed nothing is waited for. */
    @Tag("exhaustive")
    @Test
    void outputThatIsReadSlowlyIsForwardedToItsEnd() {
        Writer slow =
                new FilterWriter(out) {
                    private boolean begun;

                    @Override
                    public void write(String s, int from, int count) throws IOException {
                        if (!begun) {
                            begun = true;
                            try {
                                Thread.sleep(4000);
                            } catch (InterruptedException e) {
                                throw new IOException(e);
                            }
                        }
                        super.write(s, from, count);
                    }
                };
        assertEquals(0, runShell("echo 1; echo 2; echo 3", new PrintWriter(slow), "-n", "1"));
        assertEquals("1\n2\n3\n", out.toString());
    }

    /** It has the pipe open and prints nothing. */
    @Tag("exhaustive")
    @Test
    void aProcessThatARankLeavesBehindIsNotWaitedFor() {
        assertEquals(0, runShell("setsid sleep 600 & echo $!", "-n", "1"), err::toString);
        long pid = Long.parseLong(out.toString().strip());
        assertTrue(ProcessHandle.of(pid).map(ProcessHandle::destroyForcibly).isPresent());
    }

    /** As after {@code | head}; with logs the ranks go on. */
    @Test
    void anEndlessRunEndsWhenNobodyReadsItsOutput(@TempDir Path logs) throws IOException {
        PrintWriter closed =
                new PrintWriter(
                        new FilterWriter(out) {
                            @Override
                            public void write(String s, int from, int count) throws IOException {
                                throw new IOException("Broken pipe");
                            }
                        });
        String[] options = {"-n", "2", "--max-restarts", "1"};
        String endless = "while :; do echo more; sleep 0.01; done";
        assertEquals(141, runShell(endless, closed, options), err::toString);
        String[] logged = {"-n", "1", "--log-dir", logs.toString()};
        assertEquals(0, runShell("echo 1; echo 2", closed, logged), err::toString);
        assertEquals("1\n2\n", Files.readString(logs.resolve("rank-0.out")));
        assertEquals("", err.toString());
    }

    @Test
    void ranksAreStartedAgainAfterAFailure() {
        String script =
                """
                restart=$TORCHELASTIC_RESTART_COUNT
                echo "start $restart of $TORCHELASTIC_MAX_RESTARTS in $JCCL_JOB_ID"
                if [ $restart -lt 2 ] && [ $RANK = 1 ]; then exit 7; fi
                """;
        String[] options = {"-n", "2", "--no-prefix", "--max-restarts", "3"};
        assertEquals(0, runShell(script, options), err::toString);
        Map<String, Long> starts =
                out.toString()
                        .lines()
                        .collect(Collectors.groupingBy(l -> l, Collectors.counting()));
        // Three times two ranks, each time with another name of the run.
        assertEquals(3, starts.size(), out::toString);
        for (int restart = 0; restart < 3; restart++) {
            String start = "start " + restart + " of 3 in ";
            assertEquals(
                    1,
                    starts.entrySet().stream()
                            .filter(e -> e.getKey().startsWith(start) && e.getValue() == 2)
                            .count(),
                    out::toString);
        }
        String text = err.toString();
        assertEquals(2, text.lines().filter(l -> l.contains("failed first, with")).count(), text);
        assertTrue(text.contains("jccl run: restarting all ranks, restart 2 of 3"), text);
    }

    @Tag("exhaustive")
    @Test
    void aRunThatKeepsFailingEndsWithItsStatus() {
        String[] options = {"-n", "1", "--max-restarts", "1"};
        assertEquals(9, runShell("exit 9", options));
        String text = err.toString();
        assertEquals(2, text.lines().filter(l -> l.contains("failed first, with")).count(), text);
        // A mistake on the command line is not repaired by another start.
        err.getBuffer().setLength(0);
        assertEquals(2, run("-n", "1", "--max-restarts", "1", "barrier", "-n", "none"));
        assertFalse(err.toString().contains("restart"), err::toString);
    }

    /** A JVM leaves its job before it ends, so another rank that notices may have ended by then. */
    @Test
    void aRankThatGotASignalIsTheFirst(@TempDir Path folder) {
        Path mark = folder.resolve("mark");
        String script =
                "if [ $RANK = 1 ]; then touch %1$s; sleep 0.1; kill -TERM $$; fi; ".formatted(mark)
                        + "until [ -e %1$s ]; do sleep 0.01; done; exit 1".formatted(mark);
        assertEquals(143, runShell(script, "-n", "3"), err::toString);
        String text = err.toString();
        assertTrue(text.contains("rank 1 failed first, with status 143 (signal 15)"), text);
    }

    @Test
    void othersGoOnIfEnoughAreLeft() {
        String script = "if [ $RANK -lt 2 ]; then exit 5; fi";
        assertEquals(0, runShell(script, "-n", "4", "--min-ranks", "2"), err::toString);
        String text = err.toString();
        assertTrue(text.contains("failed first, with status 5; 3 ranks go on"), text);
        assertTrue(text.contains("failed too, with status 5; 2 ranks go on"), text);
        assertEquals(5, runShell(script, "-n", "4", "--min-ranks", "3"), err::toString);
    }

    /** Two machines, which are two launchers here, and ranks that count themselves in the store. */
    @Test
    void ranksOfTwoMachinesMeet(@TempDir Path folder) throws Exception {
        String body =
                """
                try (io.jccl.rendezvous.Store store =
                        io.jccl.rendezvous.Store.fromEnvironment(java.time.Duration.ofSeconds(60))) {
                    if (store.add("count", 1) == 4) {
                        store.set("all", new byte[1]);
                    }
                    store.await("all", java.time.Duration.ofSeconds(60));
                }
                var place = io.jccl.rendezvous.LaunchEnvironment.current();
                System.out.println(
                        place.rank() + "/" + place.size() + " " + place.localRank() + "/"
                                + place.localSize() + " " + place.machines() + " " + env("GROUP_RANK")
                                + " " + place.jobId());
                """;
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        try (ExecutorService machines = Executors.newFixedThreadPool(2)) {
            List<Future<Integer>> ended = new ArrayList<>();
            for (int node = 0; node < 2; node++) {
                Path own = Files.createDirectory(folder.resolve("" + node));
                String[] options = {
                    "-n",
                    "2",
                    "--nnodes",
                    "2",
                    "--node-rank",
                    "" + node,
                    "--no-prefix",
                    "--master-addr",
                    "127.0.0.1",
                    "--master-port",
                    "" + port,
                    "-x",
                    "JCCL_STORE_SECRET=" + "0123456789abcdef".repeat(4)
                };
                ended.add(machines.submit(() -> runProgram(own, body, options)));
            }
            for (Future<Integer> f : ended) {
                assertEquals(0, f.get(), () -> err + "" + out);
            }
        }
        List<String> lines = out.toString().lines().sorted().toList();
        assertEquals(4, lines.size(), lines::toString);
        String job = lines.getFirst().replaceFirst(".* ", "");
        assertEquals(
                List.of(
                        "0/4 0/2 2 0 " + job,
                        "1/4 1/2 2 0 " + job,
                        "2/4 0/2 2 1 " + job,
                        "3/4 1/2 2 1 " + job),
                lines);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "-n 2 --nnodes 2 | --nnodes is 2, but no meeting point is given",
                "-n 2 --nnodes 2 --master-addr a | no secret: set JCCL_STORE_SECRET",
                "-n 2 --node-rank 1 | --node-rank is 1, expected less than 1",
                "-n 2 --master-addr a | --master-addr and --master-port are for --nnodes of 2",
                "-n 2 --nnodes 2 --max-restarts 1 | --max-restarts and --min-ranks see the ranks of one",
                "-n 2 --min-ranks 3 | --min-ranks is 3, expected 1 to 2, the number of ranks",
                "-n 2 -x NO_SUCH_VARIABLE | -x names NO_SUCH_VARIABLE, which is not set here",
                "-n 2 -x =3 | expected NAME or NAME=value",
                "-n 2 -x RANK=3 | -x sets RANK, which jccl run sets itself",
                "-n 2 -x JCCL_BIND=none | -x sets JCCL_BIND, which jccl run sets itself; use --bind",
                "-n 2 -x TORCHELASTIC_MAX_RESTARTS=3 | which jccl run sets itself; use --max-restarts",
                "-n 2 -x JCCL_JOB_ID=mine | -x sets JCCL_JOB_ID, which jccl run sets itself; leave it out",
                "-n 2 -x JCCL_SHM_DIR=/tmp | -x sets JCCL_SHM_DIR, but jccl run uses that folder too",
                "-n 0 | is not a whole number from 1 to 2147483647; give one",
                "-n 2 --log-dir - | --log-dir is '-', but cannot go to standard output",
                "-n 2 --log-dir /dev/null/x | --log-dir '/dev/null/x' cannot be made",
            })
    void wrongSettingsAreNamed(String options, String message) {
        List<String> arguments = new ArrayList<>(List.of(options.split(" ")));
        arguments.add("barrier");
        assertEquals(2, run(arguments.toArray(String[]::new)));
        assertTrue(err.toString().contains(message), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
        assertEquals("", out.toString());
    }

    @Tag("exhaustive")
    @Test
    void noRankIsStartedWithoutASharedFolder() throws Exception {
        List<String> command = new ArrayList<>(jccl());
        command.addAll(List.of("run", "-n", "2", "version"));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().put("JCCL_SHM_DIR", "/no/such/folder");
        Process launcher = builder.start();
        String text = new String(launcher.getInputStream().readAllBytes(), ISO_8859_1);
        assertEquals(2, launcher.waitFor(), text);
        assertTrue(text.contains("JCCL_SHM_DIR) is '/no/such/folder', which is not a"), text);
        assertFalse(text.contains("Java "), text);
        assertFalse(text.contains("Exception"), text);
    }

    @Test
    void marksForAllAndForNoneExcludeEachOther() {
        assertEquals(2, run("-n", "2", "--prefix", "--no-prefix", "barrier"));
        assertTrue(err.toString().contains("--no-prefix"), err::toString);
    }

    /**
     * A launcher as a process of its own, whose ranks say which signals they get, and have children
     * that wait as well. INT and HUP they survive if they are told to.
     */
    private static final class Launched implements AutoCloseable {
        private static final int RANKS = 3;

        /** So many lines that they are still under way when the rank has ended. */
        private static final int LAST_WORDS = 3000;

        private static final Pattern PID = Pattern.compile("(rank|child) ([0-9]+)");

        final Process launcher;
        final List<Long> ranks = new ArrayList<>();
        final List<Long> children = new ArrayList<>();
        private final List<String> lines = new ArrayList<>();
        private final BufferedReader from;

        Launched(Path folder, boolean stubborn, List<String> by, String... options)
                throws IOException {
            String program =
                    """
                    import sun.misc.Signal;

                    public class Waits {
                        public static void main(String[] args) throws Exception {
                            for (String name : new String[] {"INT", "TERM", "HUP"}) {
                                Signal.handle(
                                        new Signal(name),
                                        s -> {
                                            System.out.println("got SIG" + s.getName());
                                            System.out.print("last words\\n".repeat(%d));
                                            if (args[0].equals("false") || name.equals("TERM")) {
                                                Runtime.getRuntime().halt(1);
                                            }
                                        });
                            }
                            Process child = new ProcessBuilder("sleep", "600").start();
                            System.out.println("child " + child.pid());
                            System.out.println("rank " + ProcessHandle.current().pid());
                            Thread.sleep(600_000);
                        }
                    }
                    """
                            .formatted(LAST_WORDS);
            List<String> command = new ArrayList<>(jccl());
            if (System.getProperty("jdk.module.path", "").isEmpty()) {
                command.addAll(1, List.of("-p", modulePath()));
            }
            command.addAll(List.of("run", "-n", Integer.toString(RANKS)));
            command.addAll(List.of(options));
            command.add("--");
            command.addAll(compiled(folder, "Waits", program));
            command.add(Boolean.toString(stubborn));
            if (!by.isEmpty()) {
                String all = String.join("' '", command);
                command = new ArrayList<>(by);
                command.add("exec '" + all + "'");
            }
            command.addAll(0, withSignals());
            launcher = new ProcessBuilder(command).redirectErrorStream(true).start();
            from = launcher.inputReader();
            while (ranks.size() < RANKS) {
                String l = readLine();
                assertNotNull(l, () -> "ended: " + lines);
                Matcher m = PID.matcher(l);
                if (m.find()) {
                    (m.group(1).equals("rank") ? ranks : children).add(Long.parseLong(m.group(2)));
                }
            }
        }

        /**
         * What a command starts with so that it does not inherit that SIGINT is ignored, as it is
         * for what a shell started in the background: ranks would never get it.
         */
        private static List<String> withSignals() {
            List<String> prefix = List.of("env", "--default-signal=INT,HUP");
            boolean works = works(prefix, "true");
            assumeTrue(works || !ignoresInterrupts(), "SIGINT is ignored here");
            return works ? prefix : List.of();
        }

        private static boolean ignoresInterrupts() {
            try (Stream<String> status = Files.lines(Path.of("/proc/self/status"))) {
                return status.filter(l -> l.startsWith("SigIgn:"))
                        .map(l -> l.substring("SigIgn:".length()).strip())
                        .anyMatch(mask -> (Long.parseUnsignedLong(mask, 16) & 1 << 1) != 0);
            } catch (IOException e) {
                return false;
            }
        }

        private @Nullable String readLine() throws IOException {
            String l = from.readLine();
            if (l != null) {
                lines.add(l);
            }
            return l;
        }

        void signal(String name) throws IOException, InterruptedException {
            assertEquals(
                    0,
                    new ProcessBuilder("kill", "-" + name, Long.toString(launcher.pid()))
                            .start()
                            .waitFor());
        }

        /** Waits until every rank has said that it got a signal. */
        void awaitReceived(String name) throws IOException {
            while (received(name) < RANKS) {
                assertNotNull(readLine(), () -> "no SIG" + name + " in " + lines);
            }
        }

        long received(String name) {
            return lines.stream().filter(l -> l.contains("got SIG" + name)).count();
        }

        void assertEnds(int status) throws IOException, InterruptedException {
            while (readLine() != null) {
                // The rest, which the launcher waits for.
            }
            assertTrue(launcher.waitFor(60, TimeUnit.SECONDS), "the launcher goes on");
            assertEquals(status, launcher.exitValue(), () -> "of " + lines);
            assertFalse(anyAlive(ranks));
            assertFalse(anyAlive(children));
        }

        static boolean anyAlive(List<Long> pids) {
            return pids.stream()
                    .flatMap(pid -> ProcessHandle.of(pid).stream())
                    .anyMatch(ProcessHandle::isAlive);
        }

        @Override
        public void close() {
            launcher.descendants().forEach(ProcessHandle::destroyForcibly);
            launcher.destroyForcibly();
            Stream.concat(ranks.stream(), children.stream())
                    .flatMap(pid -> ProcessHandle.of(pid).stream())
                    .forEach(ProcessHandle::destroyForcibly);
        }
    }

    @ParameterizedTest
    @CsvSource({"TERM, 15"})
    void signalsReachAllRanks(String name, int number, @TempDir Path folder) throws Exception {
        try (Launched launched = new Launched(folder, false, List.of(), "--kill-after", "60")) {
            launched.signal(name);
            launched.assertEnds(128 + number);
            assertEquals(Launched.RANKS, launched.received(name), launched.lines::toString);
            assertFalse(launched.lines.toString().contains("failed first"));
            // What they print while they end is not lost, either.
            assertEquals(
                    Launched.RANKS * Launched.LAST_WORDS,
                    launched.lines.stream().filter(l -> l.endsWith("last words")).count());
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"INT, 2", "HUP, 1"})
    void signalsReachAllRanksInMoreCases(String name, int number, @TempDir Path folder)
            throws Exception {
        signalsReachAllRanks(name, number, folder);
    }

    /** What starts a shell's command for which a program takes seconds to start. */
    private static List<String> slowed(String program, Path folder) throws IOException {
        Path slow = folder.resolve(program);
        Files.writeString(
                slow, "#!/bin/sh\nsleep 3\nPATH=${PATH#*:} exec " + program + " \"$@\"\n");
        assertTrue(slow.toFile().setExecutable(true));
        String path = "PATH=" + folder + ":" + System.getenv("PATH");
        return List.of("env", path, "/bin/sh", "-c");
    }

    /** A shell sends it, which takes seconds to start on an overloaded machine. */
    @Tag("exhaustive")
    @Test
    void ranksGetTheSignalThatWasSentHoweverSlowTheShell(@TempDir Path folder) throws Exception {
        List<String> by = slowed("sh", folder);
        try (Launched launched = new Launched(folder, false, by, "--kill-after", "60")) {
            launched.signal("INT");
            launched.assertEnds(128 + 2);
            assertEquals(Launched.RANKS, launched.received("INT"), launched.lines::toString);
            assertEquals(0, launched.received("TERM"), launched.lines::toString);
        }
    }

    @Tag("exhaustive")
    @Test
    void ranksThatSurviveASignalAreKilled(@TempDir Path folder) throws Exception {
        try (Launched launched = new Launched(folder, true, List.of(), "--kill-after", "8")) {
            launched.signal("INT");
            launched.assertEnds(128 + 2);
            assertEquals(Launched.RANKS, launched.received("INT"), launched.lines::toString);
            assertEquals(0, launched.received("TERM"), launched.lines::toString);
        }
    }

    @Tag("exhaustive")
    @Test
    void aSecondSignalKillsAtOnce(@TempDir Path folder) throws Exception {
        // Without it they would go on for longer than the test waits.
        try (Launched launched = new Launched(folder, true, List.of(), "--kill-after", "600")) {
            launched.signal("INT");
            launched.awaitReceived("INT");
            Thread.sleep(200); // as by hand: faster ones count as the same signal
            launched.signal("INT");
            launched.assertEnds(128 + 2);
            assertEquals(Launched.RANKS, launched.received("INT"), launched.lines::toString);
        }
    }

    /** The terminal has sent it to all in the foreground: once is what they asked for. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {false})
    void aTerminalsInterruptReachesRanksOnce(boolean stubborn, @TempDir Path folder)
            throws Exception {
        // util-linux: a command on a terminal whose keys are this process's output to it.
        List<String> script = List.of("script", "-q", "-e", "-f", "/dev/null", "-c");
        assumeTrue(works(script, "test -t 0"), "no script of util-linux here");
        String patience = stubborn ? "10" : "100";
        try (Launched launched = new Launched(folder, stubborn, script, "--kill-after", patience)) {
            launched.launcher.getOutputStream().write(3);
            launched.launcher.getOutputStream().flush();
            launched.assertEnds(128 + 2);
            assertEquals(Launched.RANKS, launched.received("INT"), launched.lines::toString);
            assertEquals(
                    stubborn ? Launched.RANKS : 0,
                    launched.received("TERM"),
                    launched.lines::toString);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {true})
    void aTerminalsInterruptReachesRanksOnceInMoreCases(boolean stubborn, @TempDir Path folder)
            throws Exception {
        aTerminalsInterruptReachesRanksOnce(stubborn, folder);
    }

    private static boolean works(List<String> prefix, String last) {
        List<String> command = new ArrayList<>(prefix);
        command.add(last);
        try {
            Process p = new ProcessBuilder(command).start();
            return p.waitFor(20, TimeUnit.SECONDS) && p.exitValue() == 0;
        } catch (IOException | InterruptedException e) {
            return false;
        }
    }

    @Test
    void ranksDoNotSurviveALauncherThatIsKilled(@TempDir Path folder) throws Exception {
        ranksDoNotSurviveALauncherThatIsKilled(folder, List.of());
    }

    @Tag("exhaustive")
    @Test
    void norOneOnAnOverloadedMachine(@TempDir Path folder) throws Exception {
        ranksDoNotSurviveALauncherThatIsKilled(folder, slowed("setpriv", folder));
    }

    private static void ranksDoNotSurviveALauncherThatIsKilled(Path folder, List<String> by)
            throws Exception {
        assumeTrue(
                ParentWatch.bound(List.of("x")).size() > 1,
                "no setpriv --pdeathsig here (util-linux 2.33)");
        try (Launched launched = new Launched(folder, false, by)) {
            launched.signal("KILL");
            assertTrue(launched.launcher.waitFor(60, TimeUnit.SECONDS), "the launcher goes on");
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (Launched.anyAlive(launched.ranks) && System.nanoTime() < deadline) {
                Thread.sleep(20);
            }
            assertFalse(Launched.anyAlive(launched.ranks));
        }
    }

    static String modulePath() {
        return Stream.of("jdk.module.path", "java.class.path")
                .map(p -> System.getProperty(p, ""))
                .filter(p -> !p.isEmpty())
                .findFirst()
                .orElseThrow();
    }
}

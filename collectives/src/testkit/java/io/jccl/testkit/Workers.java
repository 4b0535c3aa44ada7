package io.jccl.testkit;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.LocalJob;
import io.jccl.device.Device;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.URL;
import java.nio.file.DirectoryStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Ranks as JVMs of their own, started on the class path that this JVM runs with. */
public final class Workers implements AutoCloseable {
    /** A JVM that soon ends: little is compiled and collected, and classes are not verified. */
    public static final List<String> SHORT_LIVED =
            List.of(
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UnlockDiagnosticVMOptions",
                    "-XX:-BytecodeVerificationRemote");

    /** The flag of a rank whose loops are to run as in an application. */
    public static final String OPTIMIZED = "-XX:TieredStopAtLevel=4";

    /**
     * Below the ports that Linux gives to those who ask for any (from 32768 on), or a connection
     * made meanwhile might get one of these; from anywhere, since other runs take ports too.
     */
    private static final AtomicInteger NEXT_PORT =
            new AtomicInteger(ThreadLocalRandom.current().nextInt(20_000, 30_000));

    /**
     * How many times as long as given the waits last here, from 1 to 5: by the time it takes to
     * start a JVM, which is a quarter of a second where the waits were chosen.
     */
    private static final class Slowness {
        private static final double FACTOR = measured();

        private static double measured() {
            String given = System.getProperty("jccl.test.patience");
            if (given != null) {
                return Double.parseDouble(given);
            }
            long began = System.nanoTime();
            try {
                List<String> command =
                        List.of(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-Xshare:auto",
                                "-version");
                new ProcessBuilder(command)
                        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start()
                        .waitFor();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            return Math.clamp((System.nanoTime() - began) / 250e6, 1, 5);
        }

        static Duration of(Duration patience) {
            return Duration.ofMillis((long) (patience.toMillis() * FACTOR));
        }
    }

    /**
     * A time within which something that comes soon has to come here.
     *
     * @param idle that time on an idle machine
     * @return the same, or up to five times as long on a slow one
     */
    public static Duration patience(Duration idle) {
        return Slowness.of(idle);
    }

    private final List<Worker> all = new ArrayList<>();
    private final String jobId;
    private final int size;
    private final List<String> jvmFlags;
    private final Map<String, String> environment;
    private List<String> by = List.of();

    /**
     * Prepares a world; nothing runs yet.
     *
     * @param size number of ranks
     * @param jobId joins the ranks of one world
     * @param jvmFlags more flags for the JVMs
     * @param environment more variables, or other values; an empty value removes one
     */
    public Workers(int size, String jobId, List<String> jvmFlags, Map<String, String> environment) {
        this.size = size;
        this.jobId = jobId;
        this.jvmFlags = jvmFlags;
        this.environment = environment;
    }

    /**
     * Starts further ranks by another program, which has to become them by exec.
     *
     * @param command such as {@code ip netns exec NAME}
     * @return this
     */
    public Workers by(String... command) {
        this.by = List.of(command);
        return this;
    }

    /** A job id that no other run has. */
    public static String newJobId() {
        return "t" + ProcessHandle.current().pid() + "x" + Long.toHexString(System.nanoTime());
    }

    /** A port of the loopback device on which nobody listens; another one each time. */
    public static int freePort() {
        while (true) {
            int port = NEXT_PORT.getAndIncrement();
            try (var socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return socket.getLocalPort();
            } catch (BindException e) {
                // Taken: the next one.
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    /**
     * Starts all ranks.
     *
     * @param main class to run
     * @param args its arguments
     * @return this
     */
    public Workers startAll(Class<?> main, String... args) {
        for (int rank = 0; rank < size; rank++) {
            start(rank, main, args);
        }
        return this;
    }

    /**
     * Starts one rank.
     *
     * @param rank which
     * @param main class to run
     * @param args its arguments
     * @return the process
     */
    public Worker start(int rank, Class<?> main, String... args) {
        List<String> command = new ArrayList<>(by);
        command.addAll(command(jvmFlags, main, args));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        Map<String, String> env = builder.environment();
        // nothing of a launcher that this JVM itself may run under
        env.keySet().removeIf(Workers::isLauncherVariable);
        env.put("RANK", Integer.toString(rank));
        env.put("WORLD_SIZE", Integer.toString(size));
        env.put("LOCAL_RANK", Integer.toString(rank));
        env.put("LOCAL_WORLD_SIZE", Integer.toString(size));
        env.put("JCCL_JOB_ID", jobId);
        environment.forEach((name, value) -> {
            if (value.isEmpty()) {
                env.remove(name);
            } else {
                env.put(name, value);
            }
        });
        try {
            Worker worker = new Worker(rank, builder.start());
            all.add(worker);
            return worker;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * How a JVM like this one is started: for a short life, with the quick compiler alone. That one
     * has no vector instructions, so that each operation of the Vector API is a call that allocates
     * its result; such a JVM gets the module only where its flags ask for the other compiler.
     *
     * @param jvmFlags more flags for it
     * @param main class to run
     * @param args its arguments
     * @return the command
     */
    public static List<String> command(List<String> jvmFlags, Class<?> main, String... args) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(SHORT_LIVED);
        command.addAll(List.of("-Xmx256m", "--enable-native-access=ALL-UNNAMED"));
        if (jvmFlags.contains(OPTIMIZED)
                && ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent()) {
            command.add("--add-modules=jdk.incubator.vector");
        }
        for (String property : List.of("jccl.shm.dir", "jccl.seed")) {
            String value = System.getProperty(property);
            if (value != null) {
                command.add("-D" + property + "=" + value);
            }
        }
        command.addAll(jvmFlags);
        command.addAll(List.of("-cp", classPath(), main.getName()));
        command.addAll(List.of(args));
        return command;
    }

    /** Whether a launcher sets this variable. */
    public static boolean isLauncherVariable(String name) {
        return name.startsWith("OMPI_")
                || name.startsWith("PMI_")
                || name.startsWith("PMIX_")
                || name.startsWith("HYDI_")
                || name.startsWith("MPI_LOCAL")
                || name.startsWith("SLURM_")
                || name.startsWith("MASTER_")
                || name.equals("JAVA_TOOL_OPTIONS");
    }

    /**
     * Waits, in a process that was started here, until all ranks run and have loaded what they
     * need: a timeout that begins then is not about how long their JVMs take to start.
     *
     * @param device of this rank
     */
    public static void meet(Device device) {
        CommunicatorOptions patient =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMinutes(5));
        Communicator.local(List.of(device), patient).forEach(Communicator::close);
        Map<String, String> env = System.getenv();
        int size = Integer.parseInt(env.get("WORLD_SIZE"));
        LocalJob.join(env.get("JCCL_JOB_ID") + "-start", rank(env), size, patient).close();
    }

    /** Which rank a launcher says this process is. */
    public static int rank(Map<String, String> environment) {
        return Stream.of("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
                .map(environment::get)
                .filter(Objects::nonNull)
                .mapToInt(Integer::parseInt)
                .findFirst()
                .orElse(0);
    }

    /** The ranks started so far. */
    public List<Worker> all() {
        return all;
    }

    /** Ends what still runs. */
    @Override
    public void close() {
        for (Worker worker : all) {
            worker.kill();
        }
        for (Worker worker : all) {
            worker.join(Duration.ofSeconds(20));
        }
    }

    /**
     * Where the classes of this JVM come from, also when it runs on the module path: surefire
     * patches the test classes into the module, and only their own resource URL tells where they
     * lie.
     */
    private static String classPath() {
        Set<String> entries = new LinkedHashSet<>();
        entries.add(rootOf(Workers.class));
        entries.add(rootOf(Communicator.class));
        for (String property : List.of("jdk.module.path", "java.class.path")) {
            String path = System.getProperty(property, "");
            for (String entry : path.split(File.pathSeparator, -1)) {
                if (!entry.isEmpty()) {
                    entries.add(entry);
                }
            }
        }
        return String.join(File.pathSeparator, entries);
    }

    /**
     * Where a class comes from.
     *
     * @param type a class of the class path or the module path
     * @return its folder or archive
     */
    public static String rootOf(Class<?> type) {
        String file = type.getSimpleName() + ".class";
        URL url = type.getResource(file);
        if (url == null) {
            throw new IllegalStateException("no resource " + file + " beside " + type);
        }
        String text = url.toString();
        String inside = type.getName().replace('.', '/') + ".class";
        String root = text.substring(0, text.length() - inside.length());
        if (root.startsWith("jar:")) {
            root = root.substring("jar:".length(), root.lastIndexOf("!/"));
        }
        return Path.of(URI.create(root)).toString();
    }

    /** One rank. */
    public static final class Worker {
        /** More than a joining rank polls between two looks at the others. */
        private static final int POLLS = 500;

        private final int rank;
        private final Process process;
        private final List<String> lines = new ArrayList<>();
        private final Thread reader;

        /** Takes over a process, such as a launcher; its rank is a mere number. */
        public Worker(int rank, Process process) {
            this.rank = rank;
            this.process = process;
            this.reader =
                    Thread.ofPlatform().daemon().name("output of rank " + rank).start(this::read);
        }

        private void read() {
            try (BufferedReader in = process.inputReader()) {
                for (String line = in.readLine(); line != null; line = in.readLine()) {
                    synchronized (lines) {
                        lines.add(line);
                        lines.notifyAll();
                    }
                }
            } catch (IOException e) {
                // the process was ended while it wrote
            }
        }

        public int rank() {
            return rank;
        }

        public long pid() {
            return process.pid();
        }

        public boolean isAlive() {
            return process.isAlive();
        }

        /** Everything printed so far. */
        public List<String> lines() {
            synchronized (lines) {
                return List.copyOf(lines);
            }
        }

        /** Waits for a line that starts with a text; fails with all output if it does not come. */
        public String await(String start, Duration patience) {
            return await(start, line -> line.startsWith(start), patience);
        }

        /** Waits for a line of standard error or output that has a text somewhere. */
        public String awaitContaining(String text, Duration patience) {
            return await(text, line -> line.contains(text) && !line.startsWith("ERROR "), patience);
        }

        private String await(String start, Predicate<String> test, Duration given) {
            Duration patience = Slowness.of(given);
            long deadline = System.nanoTime() + patience.toNanos();
            synchronized (lines) {
                while (true) {
                    for (String line : lines) {
                        if (test.test(line)) {
                            return line;
                        }
                    }
                    long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                    if (left <= 0 || (!reader.isAlive() && !process.isAlive())) {
                        throw new AssertionError(
                                "rank "
                                        + rank
                                        + " did not print '"
                                        + start
                                        + "' "
                                        + (left <= 0 ? "in " + patience : "before it ended")
                                        + ", but:\n"
                                        + String.join("\n", lines));
                    }
                    try {
                        lines.wait(Math.min(left, 200));
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }
            }
        }

        /** Waits for the end; fails with all output if it does not come. */
        public int join(Duration given) {
            Duration patience = Slowness.of(given);
            try {
                if (!process.waitFor(patience.toMillis(), TimeUnit.MILLISECONDS)) {
                    throw new AssertionError(
                            "rank "
                                    + rank
                                    + " still runs after "
                                    + patience
                                    + ":\n"
                                    + String.join("\n", lines()));
                }
                reader.join(TimeUnit.SECONDS.toMillis(10));
                return process.exitValue();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        /**
         * Waits until its main thread, which polls for something, has done so many times more: by
         * then it has seen all that was there before, however slow the machine is.
         */
        public void awaitPolls(Duration given) throws InterruptedException {
            long deadline = System.nanoTime() + Slowness.of(given).toNanos();
            long since = naps();
            if (since == 0) {
                // A kernel that does not count them.
                Thread.sleep(Slowness.of(Duration.ofSeconds(1)));
                return;
            }
            while (naps() - since < POLLS) {
                if (System.nanoTime() - deadline > 0) {
                    throw new AssertionError(
                            "rank " + rank + " does not poll:\n" + String.join("\n", lines()));
                }
                Thread.sleep(20);
            }
        }

        /** How often the threads of its launcher, of which the main thread is one, have slept. */
        private long naps() {
            long naps = 0;
            try (DirectoryStream<Path> threads =
                    Files.newDirectoryStream(Path.of("/proc/" + pid() + "/task"))) {
                for (Path thread : threads) {
                    naps += napsOf(thread);
                }
            } catch (IOException e) {
                throw new AssertionError(
                        "rank " + rank + " has ended:\n" + String.join("\n", lines()), e);
            }
            return naps;
        }

        private static long napsOf(Path thread) {
            try {
                List<String> status = Files.readAllLines(thread.resolve("status"));
                String key = "voluntary_ctxt_switches:";
                return status.getFirst().equals("Name:\tjava")
                        ? status.stream()
                                .filter(line -> line.startsWith(key))
                                .map(line -> line.substring(key.length()).strip())
                                .mapToLong(Long::parseLong)
                                .sum()
                        : 0;
            } catch (IOException e) {
                return 0; // one that has just ended
            }
        }

        /** Ends its standard input, for a rank that waits for that. */
        public void endInput() {
            try {
                process.getOutputStream().close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** Ends it at once, with no chance to tidy up. */
        public void kill() {
            process.destroyForcibly();
        }

        /** Sends a signal. */
        public void signal(String name) {
            try {
                new ProcessBuilder("kill", "-" + name, Long.toString(pid())).start().waitFor();
            } catch (IOException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /**
     * Waits until ranks of a job on the host engine are joining: each has its lock in the job's
     * folder, which has its final name then.
     */
    public static void awaitJoining(String job, Duration patience, int... ranks)
            throws InterruptedException {
        long deadline = System.nanoTime() + patience.toNanos();
        for (int rank : ranks) {
            while (sharedFiles(job).stream().noneMatch(f -> f.endsWith("rank-" + rank + ".lock"))) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("rank " + rank + " does not join");
                }
                Thread.sleep(20);
            }
        }
    }

    /** Files in shared memory whose path has a text in it. Others may come and go meanwhile. */
    public static List<Path> sharedFiles(String part) {
        String variable = System.getenv().getOrDefault("JCCL_SHM_DIR", "/dev/shm");
        Path root = Path.of(System.getProperty("jccl.shm.dir", variable));
        List<Path> found = new ArrayList<>();
        try {
            Files.walkFileTree(
                    root,
                    new SimpleFileVisitor<>() {
                        @Override
                        public FileVisitResult preVisitDirectory(
                                Path folder, BasicFileAttributes attributes) {
                            return visitFile(folder, attributes);
                        }

                        @Override
                        public FileVisitResult visitFile(
                                Path file, BasicFileAttributes attributes) {
                            if (root.relativize(file).toString().contains(part)) {
                                found.add(file);
                            }
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult visitFileFailed(Path file, IOException e) {
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult postVisitDirectory(
                                Path folder, @Nullable IOException e) {
                            return FileVisitResult.CONTINUE;
                        }
                    });
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return found;
    }
}

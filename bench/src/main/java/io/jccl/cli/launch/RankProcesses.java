package io.jccl.cli.launch;

import io.jccl.CpuBinding;
import io.jccl.LocalJob;
import io.jccl.cli.shell.ClosedOutput;
import io.jccl.cli.shell.Text;
import io.jccl.rendezvous.LaunchEnvironment;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** The processes of one run, or of one of its restarts, from their start to their end. */
final class RankProcesses {
    /** How long to wait for killed processes, and for further output after the ranks' end. */
    private static final Duration LAST = Duration.ofSeconds(2);

    /** How long a reader that takes a little now and then holds up the end after a signal. */
    private static final Duration MOST = Duration.ofSeconds(10);

    /**
     * Some senders signal both a process and its group; a user cannot repeat a signal that fast.
     */
    private static final long SAME_SIGNAL_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    /** The highest number of a signal. */
    private static final int LAST_SIGNAL = 64;

    /** Statuses after HUP, INT, KILL and TERM, which others send. */
    private static final List<Integer> SENT = List.of(129, 130, 137, 143);

    private static final long SOON_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final String STORE = "JCCL_STORE";
    private static final String SECRET = "JCCL_STORE_SECRET";

    /** Which output lines begin with their rank. */
    enum Marks {
        OTHERS,
        ALL,
        NONE
    }

    /**
     * What the ranks of every restart have in common.
     *
     * @param commandLine what each of them runs
     * @param count ranks of this machine
     * @param nodes number of machines, each with this many ranks
     * @param node which of the machines this is
     * @param minRanks how many ranks have to be left for the job to continue after a failure
     * @param variables of their environment, in place of this process's
     * @param binding their CPUs
     * @param marks which of their output lines begin with the rank
     * @param timestamps whether lines begin with the time
     * @param logs folder for a copy of their output; null for none
     * @param grace seconds that the others have to end after a failure
     * @param killAfter seconds between a signal and SIGKILL
     * @param maxRestarts how often the job may be restarted
     */
    record Settings(
            List<String> commandLine,
            int count,
            int nodes,
            int node,
            int minRanks,
            Map<String, String> variables,
            CpuBinding binding,
            Marks marks,
            boolean timestamps,
            @Nullable Path logs,
            int grace,
            int killAfter,
            int maxRestarts) {}

    /** How a rank ended. */
    private record Exit(int rank, int status) {}

    /** In place of one: nobody reads standard output, nor a log. */
    private static final Exit UNREAD = new Exit(-1, ClosedOutput.STATUS);

    private final Settings settings;
    private final int restart;
    private final List<String> boundCommandLine;
    private final PrintWriter out;
    private final PrintWriter err;

    /** The environment variables of all ranks. */
    private final Map<String, String> common = new HashMap<>();

    private final String id;
    private final @Nullable StoreServer store;
    private final MemoryKills memoryKills = new MemoryKills();
    private final BlockingQueue<Exit> exits = new LinkedBlockingQueue<>();
    private final List<Process> processes = new ArrayList<>();
    private final List<Forwarder> forwarders = new ArrayList<>();
    private final Lock ends = new ReentrantLock();
    private boolean ending;

    /** Whether nobody reads standard output any more. */
    private boolean unread;

    private boolean unwritable;

    private @Nullable Signals received;
    private long receivedNanos;

    /** Whether another signal has come: nothing is waited for. */
    private volatile boolean hurried;

    /** The ranks that {@link #end} asked to end. */
    private List<ProcessHandle> asked = List.of();

    RankProcesses(Settings settings, int restart, PrintWriter out, PrintWriter err) {
        this.settings = settings;
        this.restart = restart;
        this.out = out;
        this.err = err;
        // Started by the thread that stays in run() until all have ended, because the kernel ties
        // them to it.
        this.boundCommandLine = ParentWatch.bound(settings.commandLine);
        Map<String, String> inherited = new HashMap<>(System.getenv());
        inherited.putAll(settings.variables);
        common.putAll(settings.variables);
        common.put("GROUP_WORLD_SIZE", Integer.toString(settings.nodes));
        common.put("GROUP_RANK", Integer.toString(settings.node));
        common.put("TORCHELASTIC_RESTART_COUNT", Integer.toString(restart));
        common.put("TORCHELASTIC_MAX_RESTARTS", Integer.toString(settings.maxRestarts));
        common.put(CpuBinding.VARIABLE, settings.binding.toString());
        // This process was started from a build; its ranks must not race to build again.
        common.put("JCCL_NO_BUILD", "1");
        common.put(ParentWatch.VARIABLE, Long.toString(ProcessHandle.current().pid()));
        if (!StoreSecret.isIn(inherited)) {
            common.put(SECRET, StoreSecret.randomText());
        }
        inherited.putAll(common);
        if (settings.nodes == 1) {
            id = LocalJob.newId();
        } else {
            // The same on all machines: what the address of the store makes it, unless it is set.
            inherited.putAll(place(0));
            id = LaunchEnvironment.of(inherited).jobId();
        }
        common.put("JCCL_JOB_ID", id);
        if (settings.minRanks < settings.count && !inherited.containsKey(STORE)) {
            // In this process, since any of the ranks may fail.
            store = StoreServer.open("127.0.0.1", 0, StoreSecret.fromEnvironment(inherited, id));
            common.put(STORE, "tcp://127.0.0.1:" + store.port());
        } else {
            store = null;
        }
    }

    /** The rank of one of this machine's processes. */
    private Map<String, String> place(int local) {
        return Map.of(
                "RANK", Integer.toString(settings.node * settings.count + local),
                "WORLD_SIZE", Integer.toString(settings.nodes * settings.count),
                "LOCAL_RANK", Integer.toString(local),
                "LOCAL_WORLD_SIZE", Integer.toString(settings.count));
    }

    /** Whether the user ended the ranks, by a signal or a closed pipe: then none is restarted. */
    synchronized boolean wasEnded() {
        return received != null || unread;
    }

    /** 0 if all output was written to standard output or a log, else the status that tells. */
    synchronized int outputStatus() {
        return unread ? ClosedOutput.STATUS : unwritable ? 1 : 0;
    }

    int run() throws InterruptedException {
        // Runs when a signal ends this process, such as that of Ctrl-C.
        Thread hook = new Thread(this::endAndForward, "jccl-run-end");
        Runtime.getRuntime().addShutdownHook(hook);
        Signals.Taken signals = Signals.take(this::receive);
        try {
            for (int rank = 0; rank < settings.count; rank++) {
                if (!start(rank)) {
                    return 1;
                }
            }
            int status = await();
            end();
            awaitOutput(true);
            return status;
        } finally {
            end();
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
                signals.close();
            } catch (IllegalStateException e) {
                // Already shutting down: the hook does the same.
            }
        }
    }

    private boolean start(int local) {
        ProcessBuilder builder = new ProcessBuilder(boundCommandLine);
        builder.environment().putAll(common);
        builder.environment().putAll(place(local));
        builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")));
        int rank = settings.node * settings.count + local;
        synchronized (this) {
            if (ending) {
                return false;
            }
            boolean marked =
                    switch (settings.marks) {
                        case ALL -> true;
                        case OTHERS -> rank > 0;
                        case NONE -> false;
                    };
            String mark = marked ? "[" + rank + "] " : "";
            boolean times = settings.timestamps;
            String outName = logName(rank, "out");
            String errName = logName(rank, "err");
            try {
                OutputStream outLog = log(outName);
                OutputStream errLog = log(errName);
                Process process = builder.start();
                processes.add(process);
                var unused =
                        process.onExit().thenAccept(p -> exits.add(new Exit(rank, p.exitValue())));
                forward(
                        process.getInputStream(),
                        outName,
                        new Forwarder.Target(out, false, outLog, mark, times));
                forward(
                        process.getErrorStream(),
                        errName,
                        new Forwarder.Target(err, true, errLog, mark, times));
                return true;
            } catch (IOException | OutOfMemoryError e) { // the latter: no more threads
                err.println("jccl run: rank " + rank + " could not be started: " + reason(e));
                return false;
            }
        }
    }

    /** Without the lines in which the JDK guesses what else it could be. */
    static String reason(Throwable e) {
        String first = Text.message(e).lines().findFirst().orElse("").strip();
        return first.contains("Too many open files") ? first + "; raise ulimit -n" : first;
    }

    private String logName(int rank, String which) {
        return "rank-" + rank + (restart == 0 ? "" : ".restart-" + restart) + "." + which;
    }

    /** A log file, opened for appending; null without a log folder. */
    private @Nullable OutputStream log(String name) throws IOException {
        return settings.logs == null
                ? null
                : Files.newOutputStream(
                        settings.logs.resolve(name),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.APPEND);
    }

    private void forward(InputStream from, String name, Forwarder.Target target) {
        Forwarder forwarder =
                new Forwarder(name, from, target, this::outputFails, e -> logFails(name, e));
        forwarder.start();
        forwarders.add(forwarder);
    }

    /** Ends the run as SIGPIPE would, which the JVM ignores; a full disk does not end it. */
    private synchronized void outputFails() {
        if (unwritable) {
            return;
        }
        unwritable = true;
        unread = ClosedOutput.isPipe();
        if (unread) {
            exits.add(UNREAD);
        } else {
            err.println("jccl run: standard output cannot be written; the ranks continue");
            err.flush();
        }
    }

    private void logFails(String name, IOException e) {
        err.println("jccl run: " + name + " is not written any more: " + e.getMessage());
        err.flush();
    }

    /** The status of the rank whose failure ended the run, or 0. */
    private int await() throws InterruptedException {
        int lost = 0;
        for (int ended = 1; ended <= settings.count; ended++) {
            Exit exit = exits.take();
            if (exit.rank < 0) {
                return exit.status;
            }
            if (exit.status == 0) {
                continue;
            }
            exit = cause(exit, settings.count - ended);
            lost++;
            int left = settings.count - lost;
            boolean enough = left >= settings.minRanks;
            report(exit, lost == 1, enough ? left : -1);
            if (!enough) {
                awaitOthers(settings.count - ended);
                return exit.status;
            }
        }
        return 0;
    }

    /**
     * The failure, or one that comes soon after it from a signal: the others notice that a rank
     * ends before its JVM has ended, and may be faster.
     */
    private Exit cause(Exit failure, int others) throws InterruptedException {
        Exit cause = failure;
        List<Exit> rest = new ArrayList<>();
        long deadline = System.nanoTime() + SOON_NANOS;
        while (!SENT.contains(cause.status) && rest.size() < others) {
            Exit next = exits.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (next == null) {
                break;
            }
            rest.add(SENT.contains(next.status) ? cause : next);
            cause = SENT.contains(next.status) ? next : cause;
        }
        exits.addAll(rest);
        return cause;
    }

    private void awaitOthers(int left) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(settings.grace);
        for (int more = left; more > 0; ) {
            Exit next = exits.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (next != null) {
                more -= next.rank < 0 ? 0 : 1;
            } else {
                err.println(
                        "jccl run: ended "
                                + Text.count(more, "more rank")
                                + " that did not stop within "
                                + settings.grace
                                + " s");
                err.flush();
                return;
            }
        }
    }

    private void report(Exit exit, boolean first, int left) {
        synchronized (this) {
            if (ending || received != null) {
                return;
            }
        }
        String how =
                exit.status > 128 && exit.status <= 128 + LAST_SIGNAL
                        ? "status " + exit.status + " (signal " + (exit.status - 128) + ")"
                        : "status " + exit.status;
        err.println(
                "jccl run: rank "
                        + exit.rank
                        + (first ? " failed first, with " : " failed too, with ")
                        + how
                        + memoryKills.note(exit.status)
                        + switch (left) {
                            case -1 -> "";
                            case 1 -> "; 1 rank goes on";
                            default -> "; " + left + " ranks go on";
                        });
        err.flush();
    }

    /** The first signal ends this process, and by its hook the ranks; the next one kills them. */
    private void receive(Signals signal) {
        synchronized (this) {
            long now = System.nanoTime();
            if (received != null) {
                if (now - receivedNanos > SAME_SIGNAL_NANOS) {
                    hurried = true;
                    tree(processes).forEach(ProcessHandle::destroyForcibly);
                    asked.forEach(ProcessHandle::destroyForcibly);
                }
                return;
            }
            received = signal;
            receivedNanos = now;
        }
        System.exit(signal.status());
    }

    private static List<ProcessHandle> tree(List<Process> processes) {
        return processes.stream()
                .filter(Process::isAlive)
                .flatMap(p -> Stream.concat(Stream.of(p.toHandle()), p.descendants()))
                .toList();
    }

    /**
     * Ends the processes that still run and removes what they leave behind; a second caller waits.
     */
    private void end() {
        ends.lock();
        try {
            List<ProcessHandle> tree;
            Signals signal;
            synchronized (this) {
                ending = true;
                // Queried once: a process that has ended no longer has children.
                tree = tree(processes);
                asked = tree;
                signal = received == null ? Signals.TERM : received;
            }
            long limit = TimeUnit.SECONDS.toNanos(settings.killAfter);
            if (signal.isOfTerminal()) {
                // They have received it, and a second one may mean more to them. A process that has
                // not gets TERM.
                limit /= 2;
                awaitEnd(tree, System.nanoTime() + limit);
                signal = Signals.TERM;
            }
            signal.send(tree);
            awaitEnd(tree, System.nanoTime() + limit);
            List<ProcessHandle> killed = tree.stream().filter(ProcessHandle::isAlive).toList();
            killed.forEach(ProcessHandle::destroyForcibly);
            awaitEnd(killed, System.nanoTime() + LAST.toNanos());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            ends.unlock();
        }
        if (store != null) {
            store.close();
        }
        LocalJob.cleanUp(id);
    }

    /** What a shutdown hook does: when it returns, the JVM halts, and with it the forwarders. */
    private void endAndForward() {
        end();
        try {
            awaitOutput(false);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Waits until the output of the ranks, which have ended, is forwarded.
     *
     * @param patient whether to wait for a reader that takes nothing
     */
    private void awaitOutput(boolean patient) throws InterruptedException {
        long ended = System.nanoTime();
        List<Forwarder> all;
        synchronized (this) {
            all = List.copyOf(forwarders);
        }
        for (Forwarder f : all) {
            while (!hurried
                    && (patient || System.nanoTime() - ended < MOST.toNanos())
                    && !f.awaitRest(ended, LAST, patient)) {
                // A moment has passed.
            }
        }
    }

    private static void awaitEnd(List<ProcessHandle> all, long deadline)
            throws InterruptedException {
        for (ProcessHandle p : all) {
            try {
                p.onExit().get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (ExecutionException | TimeoutException e) {
                // The caller uses stronger means next.
            }
        }
    }
}

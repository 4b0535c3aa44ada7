package io.jccl.cli.launch;

import io.jccl.CpuBinding;
import io.jccl.LocalJob;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Version;
import io.jccl.rendezvous.StoreSecret;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** Starts the ranks of a job as processes of this machine, and sees them all to their end. */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "  jccl run -n 4 all_reduce -b 8 -e 64M -f 2",
            "  jccl run -n 4 -- -cp trainer.jar com.example.Trainer --epochs 3",
            "",
            "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, JCCL_JOB_ID, JCCL_BIND"
                    + " and, if none is set, a random JCCL_STORE_SECRET."
                    + " Exit status: that of the rank that failed first, or 0."
                    + " SIGINT, SIGTERM and SIGHUP are passed on to all ranks; a second one, such as"
                    + " that of another Ctrl-C, kills them.",
        })
public final class RunCommand implements Callable<Integer> {
    /** What is over when it says so: nobody waits for more than its last words. */
    private static final long LAST_SECONDS = 2;

    /** Some send one signal to a process and to its group; nobody is as fast as that by hand. */
    private static final long SAME_SIGNAL_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private final Function<Boolean, List<String>> prefix;
    private final Predicate<String> isCommand;

    @Spec private @Nullable CommandSpec spec;

    @Option(
            names = {"-n", "--nproc"},
            paramLabel = "<count>",
            required = true,
            converter = Count.class,
            description = "Number of ranks.")
    private int count;

    /** Which lines say whose they are. */
    private static final class Marks {
        @Option(names = "--prefix", description = "Mark the lines of rank 0 too, not only others'.")
        private boolean all;

        @Option(names = "--no-prefix", description = "Mark no lines with their rank.")
        private boolean none;
    }

    @ArgGroup private Marks marks = new Marks();

    @Option(
            names = "--grace",
            paramLabel = "<seconds>",
            converter = Count.class,
            description =
                    "How long the others may go on after a rank has failed, to report what they"
                            + " saw (default: 5).")
    private int grace = 5;

    @Option(
            names = "--kill-after",
            paramLabel = "<seconds>",
            converter = Count.class,
            description =
                    "How long ranks may take to end after a signal before SIGKILL does it (default:"
                            + " 2).")
    private int killAfter = 2;

    @Mixin private BindOption bind = new BindOption();

    @Parameters(
            paramLabel = "COMMAND",
            description = "A jccl command, or else arguments for java.",
            arity = "1..*")
    private List<String> command = new ArrayList<>();

    /**
     * Creates the command.
     *
     * @param arguments all arguments of this process
     * @param isCommand whether a word is a command of jccl
     */
    public RunCommand(String[] arguments, Predicate<String> isCommand) {
        this(
                jccl ->
                        jccl
                                ? JavaCommand.jccl(System.getenv(), arguments)
                                : List.of(System.getProperty("jdk.module.path", "")),
                isCommand);
    }

    /**
     * Creates the command for a test.
     *
     * @param prefix given true, what starts jccl; given false, the module path, alone
     * @param isCommand whether a word is a command of jccl
     */
    public RunCommand(Function<Boolean, List<String>> prefix, Predicate<String> isCommand) {
        this.prefix = prefix;
        this.isCommand = isCommand;
    }

    /** How a rank ended. */
    private record Exit(int rank, int status) {}

    @Override
    public Integer call() throws InterruptedException {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        CommandLine line = spec.commandLine();
        if (count < 1 || count > RankOptions.MOST_RANKS) {
            throw new ParameterException(
                    line,
                    "-n/--nproc is "
                            + count
                            + ", expected 1 to "
                            + RankOptions.MOST_RANKS
                            + "; give such a number");
        }
        return new Job(
                        commandLine(line),
                        bind.in(System.getenv(), line),
                        line.getOut(),
                        line.getErr())
                .run();
    }

    private List<String> commandLine(CommandLine line) {
        List<String> all;
        if (isCommand.test(command.getFirst())) {
            if (command.getFirst().equals("run")) {
                throw new ParameterException(
                        line, "run cannot start run; give another command, such as all_reduce");
            }
            all = new ArrayList<>(prefix.apply(true));
            all.addAll(command);
        } else {
            String modulePath = prefix.apply(false).getFirst();
            if (modulePath.isEmpty()) {
                throw new IllegalStateException(
                        "'"
                                + command.getFirst()
                                + "' is no jccl command, and for a Java program"
                                + " JCCL itself must be on the module path; start it by the jccl"
                                + " script");
            }
            all = JavaCommand.program(modulePath, command);
        }
        return all;
    }

    /** The processes of one run. */
    private final class Job {
        private final List<String> boundCommandLine;
        private final CpuBinding binding;
        private final PrintWriter out;
        private final PrintWriter err;
        private final String id = LocalJob.newId();
        private final String secret = StoreSecret.randomText();
        private final BlockingQueue<Exit> exits = new LinkedBlockingQueue<>();
        private final List<Process> processes = new ArrayList<>();
        private final List<Thread> readers = new ArrayList<>();
        private final Lock ends = new ReentrantLock();
        private boolean ending;
        private @Nullable Signals received;
        private long receivedNanos;

        /** Whom {@link #end} asked to end. */
        private List<ProcessHandle> asked = List.of();

        Job(List<String> commandLine, CpuBinding binding, PrintWriter out, PrintWriter err) {
            this.binding = binding;
            // By the thread that is in run() until all have ended: the kernel ties them to it.
            this.boundCommandLine = ParentWatch.bound(commandLine);
            this.out = out;
            this.err = err;
        }

        int run() throws InterruptedException {
            // Runs when a signal ends this process, such as that of Ctrl-C.
            Thread hook = new Thread(this::end, "jccl-run-end");
            Runtime.getRuntime().addShutdownHook(hook);
            Signals.Taken signals = Signals.take(this::receive);
            try {
                for (int rank = 0; rank < count; rank++) {
                    if (!start(rank)) {
                        return 1;
                    }
                }
                int status = await();
                for (Thread r : readers) {
                    // A grandchild may hold the pipe open; the ranks themselves have ended.
                    r.join(TimeUnit.SECONDS.toMillis(LAST_SECONDS));
                }
                return status;
            } finally {
                end();
                try {
                    Runtime.getRuntime().removeShutdownHook(hook);
                    signals.close();
                } catch (IllegalStateException e) {
                    // Already shutting down, and the hook does what was done here.
                }
            }
        }

        private boolean start(int rank) {
            ProcessBuilder builder = new ProcessBuilder(boundCommandLine);
            Map<String, String> env = builder.environment();
            env.putAll(LocalJob.environment(id, rank, count));
            if (!StoreSecret.isIn(env)) {
                env.put("JCCL_STORE_SECRET", secret);
            }
            env.put(CpuBinding.VARIABLE, binding.toString());
            // This process was started from a build; its ranks must not race to make another.
            env.put("JCCL_NO_BUILD", "1");
            env.put(ParentWatch.VARIABLE, Long.toString(ProcessHandle.current().pid()));
            builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")));
            synchronized (this) {
                if (ending) {
                    return false;
                }
                Process process;
                try {
                    process = builder.start();
                } catch (IOException e) {
                    err.println(
                            "jccl run: rank " + rank + " could not be started: " + e.getMessage());
                    return false;
                }
                processes.add(process);
                var unused =
                        process.onExit().thenAccept(p -> exits.add(new Exit(rank, p.exitValue())));
                boolean marked = !marks.none && (rank > 0 || marks.all);
                String mark = marked ? "[" + rank + "] " : "";
                forward(process.inputReader(), out, mark, rank + "-out");
                forward(process.errorReader(), err, mark, rank + "-err");
                return true;
            }
        }

        private void forward(BufferedReader from, PrintWriter to, String mark, String name) {
            Thread reader =
                    new Thread(
                            () -> {
                                try (from) {
                                    for (String l = from.readLine();
                                            l != null;
                                            l = from.readLine()) {
                                        to.print(mark + l + "\n");
                                        to.flush();
                                    }
                                } catch (IOException e) {
                                    // The process was killed; what it said is out.
                                }
                            },
                            "jccl-run-" + name);
            reader.setDaemon(true);
            reader.start();
            readers.add(reader);
        }

        /** The first failing rank's status, or 0. */
        private int await() throws InterruptedException {
            int ended = 0;
            while (ended < count) {
                Exit exit = exits.take();
                ended++;
                if (exit.status != 0) {
                    report(exit);
                    awaitOthers(count - ended);
                    return exit.status;
                }
            }
            return 0;
        }

        private void awaitOthers(int left) throws InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(grace);
            for (int i = 0; i < left; i++) {
                Exit next = exits.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (next == null) {
                    err.println(
                            "jccl run: ended "
                                    + (left - i)
                                    + " more ranks that did not stop within "
                                    + grace
                                    + " s");
                    err.flush();
                    return;
                }
            }
        }

        private void report(Exit exit) {
            synchronized (this) {
                if (ending) {
                    return;
                }
            }
            String how =
                    exit.status > 128
                            ? "status " + exit.status + " (signal " + (exit.status - 128) + ")"
                            : "status " + exit.status;
            err.println("jccl run: rank " + exit.rank + " failed first, with " + how);
            err.flush();
        }

        /**
         * The first signal ends this process, and by its hook the ranks; the next one kills them.
         */
        private void receive(Signals signal) {
            synchronized (this) {
                long now = System.nanoTime();
                if (received != null) {
                    if (now - receivedNanos > SAME_SIGNAL_NANOS) {
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

        /** Ends whatever still runs, and removes what it leaves; whoever comes later waits. */
        private void end() {
            ends.lock();
            try {
                List<Process> all;
                List<ProcessHandle> tree;
                Signals signal;
                synchronized (this) {
                    ending = true;
                    all = List.copyOf(processes);
                    // Asked for once: a process that has ended no longer names its children.
                    tree = tree(all);
                    asked = tree;
                    signal = received == null ? Signals.TERM : received;
                }
                long limit = TimeUnit.SECONDS.toNanos(killAfter);
                long start = System.nanoTime();
                if (signal.isOfTerminal()) {
                    // They have it, and a second one may mean more to them. Who does not, gets
                    // TERM.
                    awaitEnd(tree, start + limit / 2);
                    signal = Signals.TERM;
                }
                signal.send(tree);
                awaitEnd(tree, start + limit);
                tree.stream()
                        .filter(ProcessHandle::isAlive)
                        .forEach(ProcessHandle::destroyForcibly);
                for (Process p : all) {
                    p.waitFor(LAST_SECONDS, TimeUnit.SECONDS);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } finally {
                ends.unlock();
            }
            LocalJob.cleanUp(id);
        }

        private static void awaitEnd(List<ProcessHandle> all, long deadline)
                throws InterruptedException {
            for (ProcessHandle p : all) {
                try {
                    p.onExit().get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                } catch (ExecutionException | TimeoutException e) {
                    // The caller has further means.
                }
            }
        }
    }
}

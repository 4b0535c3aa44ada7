package io.jccl.cli;

import io.jccl.bench.Collective;
import io.jccl.cli.check.SelfTestCommand;
import io.jccl.cli.check.SoakCommand;
import io.jccl.cli.doctor.DoctorCommand;
import io.jccl.cli.flight.FlightCommand;
import io.jccl.cli.launch.ParentWatch;
import io.jccl.cli.launch.RunCommand;
import io.jccl.cli.launch.StoreCommand;
import io.jccl.cli.perf.BandwidthCommand;
import io.jccl.cli.perf.MatmulCommand;
import io.jccl.cli.perf.OffloadCommand;
import io.jccl.cli.perf.PerfCommand;
import io.jccl.cli.plan.PlanCommand;
import io.jccl.cli.shell.Version;
import io.jccl.cli.topo.TopoCommand;
import io.jccl.cli.train.FitDemo;
import io.jccl.cli.train.TrainCommand;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.MissingParameterException;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.UnmatchedArgumentException;

/** The {@code jccl} command. */
public final class Main {
    /** Set to 1, errors come with their stack traces. */
    private static final String DEBUG = "JCCL_DEBUG";

    /**
     * A command.
     *
     * @param about what it does, for the list of commands
     * @param create makes it, given all arguments of the process
     */
    private record Entry(String about, Function<String[], Object> create) {}

    /**
     * All commands, in the order in which help lists them; it leaves out those that say nothing
     * about themselves. Only the one that runs is made.
     */
    private static final Map<String, Entry> COMMANDS = new LinkedHashMap<>();

    static {
        for (Collective c : Collective.ALL) {
            COMMANDS.put(
                    c.command(),
                    new Entry(
                            c == Collective.BARRIER
                                    ? "Measure a barrier."
                                    : "Measure and check " + c.method() + ".",
                            args -> new PerfCommand(c)));
        }
        COMMANDS.put(
                "train",
                new Entry(
                        "Train a small GPT with every technique of parallelism by a flag.",
                        args -> new TrainCommand()));
        COMMANDS.put(
                "run",
                new Entry(
                        "Start one process per rank on this machine.",
                        args -> new RunCommand(args, Main::isCommand)));
        COMMANDS.put(
                "selftest",
                new Entry(
                        "Check every operation on the devices here.",
                        args -> new SelfTestCommand()));
        COMMANDS.put(
                "doctor",
                new Entry(
                        "Say what this machine has, what is wrong, and what to do.",
                        args -> new DoctorCommand()));
        COMMANDS.put(
                "flight",
                new Entry(
                        "Merge the recordings of all ranks: who diverged, who is late, which links"
                                + " are slow.",
                        args -> new FlightCommand()));
        COMMANDS.put(
                "plan",
                new Entry(
                        "Say what training a model needs, what fits, and the largest that does.",
                        args -> new PlanCommand()));
        COMMANDS.put(
                "topo",
                new Entry(
                        "Say how the GPUs are linked, which rings and trees use that, and what to"
                                + " expect.",
                        args -> new TopoCommand()));
        COMMANDS.put(
                "offload",
                new Entry(
                        "Measure how far copies of layers hide behind their work.",
                        args -> new OffloadCommand()));
        COMMANDS.put(
                "fit-demo",
                new Entry(
                        "Train ever larger models within fixed memory, with and without each"
                                + " technique.",
                        args -> new FitDemo()));
        COMMANDS.put(
                "matmul",
                new Entry(
                        "Multiply matrices that fit no single device.",
                        args -> new MatmulCommand()));
        COMMANDS.put(
                "bandwidth",
                new Entry(
                        "Measure copies between host, devices and drives.",
                        args -> new BandwidthCommand()));
        COMMANDS.put(
                "store",
                new Entry(
                        "Serve a store where the ranks of a run meet.",
                        args -> new StoreCommand()));
        COMMANDS.put(
                "soak",
                new Entry(
                        "Run very many mixed operations and see whether anything grows.",
                        args -> new SoakCommand()));
        // For the launcher's cache.
        COMMANDS.put("warm-up", new Entry("", args -> new WarmUp()));
        COMMANDS.put("version", new Entry("Print versions.", args -> new VersionCommand()));
    }

    @Command(
            name = "jccl",
            mixinStandardHelpOptions = true,
            versionProvider = Version.class,
            synopsisSubcommandLabel = "COMMAND",
            description = "Collective communication for the JVM.",
            footer = {
                "",
                "Try: jccl all_reduce -b 8 -e 64M -f 2 -g 2",
                "Options of a command: jccl COMMAND --help",
            })
    private static final class Top {}

    private Main() {}

    /**
     * Runs the command line and ends the process with its status.
     *
     * @param args the arguments
     */
    public static void main(String[] args) {
        ParentWatch.start(System.getenv());
        System.exit(
                execute(
                        args,
                        new PrintWriter(System.out, true, System.out.charset()),
                        new PrintWriter(System.err, true, System.err.charset())));
    }

    /**
     * Runs the command line.
     *
     * @param args the arguments
     * @param out standard output
     * @param err standard error
     * @return 0; 1 if a result was wrong or a rank failed; 2 for a mistake in the arguments; some
     *     commands have more
     */
    public static int execute(String[] args, PrintWriter out, PrintWriter err) {
        Entry entry = args.length == 0 ? null : COMMANDS.get(args[0]);
        if (entry != null) {
            String[] rest = Arrays.copyOfRange(args, 1, args.length);
            return execute(args[0], entry.create.apply(args), rest, out, err);
        }
        CommandLine top = new CommandLine(new Top());
        COMMANDS.forEach((name, e) -> {
            CommandSpec spec = CommandSpec.create();
            spec.usageMessage().description(e.about).hidden(e.about.isEmpty());
            top.addSubcommand(name, spec);
        });
        if (args.length > 0 && !args[0].startsWith("-")) {
            err.println(
                    "jccl: command '"
                            + args[0]
                            + "' is unknown, expected one of "
                            + String.join(", ", listed())
                            + "; see jccl --help");
            err.flush();
            return 2;
        }
        if (args.length == 0) {
            top.usage(out);
            out.flush();
            return 2;
        }
        return withHandlers(top, out, err).execute(args);
    }

    /**
     * Runs one command.
     *
     * @param name its name
     * @param command a picocli command
     * @param args its arguments
     * @param out standard output
     * @param err standard error
     * @return the exit status
     */
    public static int execute(
            String name, Object command, String[] args, PrintWriter out, PrintWriter err) {
        CommandLine line = new CommandLine(command);
        line.setCommandName("jccl " + name);
        // What follows the first word of `run` is not run's.
        line.setStopAtPositional(name.equals("run"));
        Entry entry = COMMANDS.get(name);
        if (entry != null) {
            line.getCommandSpec().usageMessage().description(entry.about);
        }
        return withHandlers(line, out, err).execute(args);
    }

    /**
     * Whether there is a command of a name.
     *
     * @param name first word of a command line
     * @return true if jccl runs it itself
     */
    public static boolean isCommand(String name) {
        return COMMANDS.containsKey(name);
    }

    private static List<String> listed() {
        return COMMANDS.entrySet().stream()
                .filter(e -> !e.getValue().about.isEmpty())
                .map(Map.Entry::getKey)
                .toList();
    }

    private static CommandLine withHandlers(CommandLine line, PrintWriter out, PrintWriter err) {
        return line.setOut(out)
                .setErr(err)
                .setUsageHelpAutoWidth(true)
                .setParameterExceptionHandler(Main::mistake)
                .setExecutionExceptionHandler((e, l, result) -> failure(e, l));
    }

    private static int mistake(ParameterException e, String[] args) {
        boolean needsHelp =
                e instanceof UnmatchedArgumentException || e instanceof MissingParameterException;
        CommandLine line = e.getCommandLine();
        String name = line.getCommandName();
        say(line, e, needsHelp ? "; see " + name + " --help" : "");
        return 2;
    }

    private static int failure(Exception e, CommandLine line) {
        say(line, e, "");
        return e instanceof IllegalArgumentException ? 2 : 1;
    }

    /** One line; the stack trace is for those who ask for it. */
    private static void say(CommandLine line, Exception e, String more) {
        PrintWriter err = line.getErr();
        @Nullable String message = e.getMessage();
        err.println(
                line.getCommandName()
                        + ": "
                        + plain(message == null ? e.toString() : message)
                        + more);
        if ("1".equals(System.getenv(DEBUG))) {
            e.printStackTrace(err);
        }
        err.flush();
    }

    /** On one line, with nothing that a terminal would take for a command: it may quote a file. */
    private static String plain(String message) {
        StringBuilder b = new StringBuilder(message.length());
        message.chars()
                .map(c -> c == '\n' || c == '\t' ? ' ' : Character.isISOControl(c) ? '?' : c)
                .forEach(c -> b.append((char) c));
        return b.toString();
    }
}

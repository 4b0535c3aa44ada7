package io.jccl.cli;

import static picocli.CommandLine.Model.UsageMessageSpec.SECTION_KEY_COMMAND_LIST;
import static picocli.CommandLine.Model.UsageMessageSpec.SECTION_KEY_COMMAND_LIST_HEADING;

import io.jccl.bench.Collective;
import io.jccl.bindings.internal.StandardError;
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
import io.jccl.cli.probe.ProbeCommand;
import io.jccl.cli.report.ReportCommand;
import io.jccl.cli.shell.AlsoToFiles;
import io.jccl.cli.shell.ClosedOutput;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Parsed;
import io.jccl.cli.shell.StandardWriter;
import io.jccl.cli.shell.Suggestion;
import io.jccl.cli.shell.Text;
import io.jccl.cli.shell.Version;
import io.jccl.cli.topo.TopoCommand;
import io.jccl.cli.train.FitDemo;
import io.jccl.cli.train.TrainCommand;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.FileSystemException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Help;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.UnmatchedArgumentException;

/** The {@code jccl} command. */
public final class Main {
    /** Set to 1, errors come with their stack traces. */
    private static final String DEBUG = "JCCL_DEBUG";

    /**
     * Standard error by its number, where the launcher has kept the JVM's own away from it: with
     * the Vector API, the JVM begins with a line on incubator modules.
     */
    private static final String ERROR_FILE = "jccl.stderr";

    /** How help lists commands. */
    private enum Group {
        BENCHMARKS("Benchmarks"),
        DIAGNOSE("Diagnose"),
        TRAIN_AND_PLAN("Train and plan"),
        LAUNCH("Launch"),
        ABOUT("About jccl"),
        HIDDEN("");

        private final String title;

        Group(String title) {
            this.title = title;
        }
    }

    /**
     * A command.
     *
     * @param group where help lists it
     * @param about what it does, for the list of commands
     * @param create makes it, given all arguments of the process
     */
    private record Entry(Group group, String about, Function<String[], Object> create) {}

    /** All commands, in the order in which help lists them. Only the one that runs is made. */
    private static final Map<String, Entry> COMMANDS = new LinkedHashMap<>();

    /** Earlier spellings of options, by command: they work, and help does not list them. */
    static final Map<String, Map<String, String>> EARLIER = new HashMap<>();

    static {
        for (Collective c : Collective.ALL) {
            add(Group.BENCHMARKS, c.command(), c.about(), args -> new PerfCommand(c));
            EARLIER.put(c.command(), Map.of("--output_file", JsonOption.NAME));
        }
        add(
                Group.BENCHMARKS,
                "bandwidth",
                "Measure copies between host, devices and drives.",
                args -> new BandwidthCommand());
        add(
                Group.BENCHMARKS,
                "offload",
                "Measure how far copies of layers hide behind their work.",
                args -> new OffloadCommand());
        add(
                Group.BENCHMARKS,
                "matmul",
                "Multiply matrices larger than the memory of one device.",
                args -> new MatmulCommand());
        add(
                Group.BENCHMARKS,
                "probe",
                "Measure compute, memory and links of this machine.",
                args -> new ProbeCommand());
        add(
                Group.BENCHMARKS,
                "report",
                "Compare the JSON of several runs, as a table and as a page.",
                args -> new ReportCommand());
        add(
                Group.DIAGNOSE,
                "doctor",
                "Show what this machine has, what is wrong, and what to do.",
                args -> new DoctorCommand());
        add(
                Group.DIAGNOSE,
                "topo",
                "Show how the GPUs are linked, the best rings and trees, and the expected"
                        + " performance.",
                args -> new TopoCommand());
        add(
                Group.DIAGNOSE,
                "selftest",
                "Check every operation on this machine's devices.",
                args -> new SelfTestCommand());
        add(
                Group.DIAGNOSE,
                "soak",
                "Run very many mixed operations and check whether anything grows.",
                args -> new SoakCommand());
        add(
                Group.DIAGNOSE,
                "flight",
                "Merge the recordings of all ranks: which diverged, which are late, which links"
                        + " are slow.",
                args -> new FlightCommand());
        add(
                Group.TRAIN_AND_PLAN,
                "train",
                "Train a small GPT, with a flag for every technique of parallelism.",
                args -> new TrainCommand());
        add(
                Group.TRAIN_AND_PLAN,
                "fit-demo",
                "Train ever larger models within fixed memory, with and without each technique.",
                args -> new FitDemo());
        add(
                Group.TRAIN_AND_PLAN,
                "plan",
                "Show what training a model needs, whether it fits, and the largest model that"
                        + " does.",
                args -> new PlanCommand());
        add(
                Group.LAUNCH,
                "run",
                "Start one process per rank on this machine.",
                args -> new RunCommand(args, listed()));
        add(
                Group.LAUNCH,
                "store",
                "Serve a store where the ranks of a run meet.",
                args -> new StoreCommand());
        add(Group.ABOUT, "help", "Explain a command.", args -> new HelpCommand());
        add(Group.ABOUT, "version", "Print versions.", args -> new VersionCommand());
        add(
                Group.ABOUT,
                "completion",
                "Print a completion script for bash and zsh.",
                args -> new CompletionCommand());
        // For the launcher's cache.
        add(Group.HIDDEN, "warm-up", "", args -> new WarmUp());

        Map<String, String> ranks = Map.of("--ngpus", "--ranks");
        EARLIER.put("selftest", ranks);
        EARLIER.put("soak", ranks);
        EARLIER.put("matmul", ranks);
        EARLIER.put("bandwidth", Map.of("--engine", "--device"));
        EARLIER.put(
                "offload", Map.of("--engine", "--device", "--device-budget", "--device-memory"));
        EARLIER.put("fit-demo", Map.of("--micro-batches", "--accumulate"));
        EARLIER.put(
                "plan",
                Map.ofEntries(
                        Map.entry("--tensor", "--tp"),
                        Map.entry("--pipeline", "--pp"),
                        Map.entry("--seq", "--context"),
                        Map.entry("--sequence", "--context"),
                        Map.entry("--vocabulary", "--vocab"),
                        Map.entry("--gradient-accumulation", "--accumulate"),
                        Map.entry("--stage", "--zero"),
                        Map.entry("--offload-params", "--offload-parameters"),
                        Map.entry("--recomputation", "--recompute"),
                        Map.entry("--nvme", "--nvme-memory")));
    }

    private static void add(
            Group group, String name, String about, Function<String[], Object> create) {
        COMMANDS.put(name, new Entry(group, about, create));
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
                "Options of a command: jccl help COMMAND",
            })
    private static final class Top {}

    private Main() {}

    /**
     * Runs the command line and ends the process with its status.
     *
     * @param args the arguments
     */
    public static void main(String[] args) {
        Integer error = Integer.getInteger(ERROR_FILE);
        if (error != null) {
            StandardError.replaceBy(error);
        }
        ParentWatch.start(System.getenv());
        System.exit(execute(args, new StandardWriter(System.out), new StandardWriter(System.err)));
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
            spec.usageMessage().description(e.about);
            top.addSubcommand(name, spec);
        });
        top.getHelpSectionMap().put(SECTION_KEY_COMMAND_LIST_HEADING, help -> "");
        top.getHelpSectionMap().put(SECTION_KEY_COMMAND_LIST, Main::groups);
        if (args.length > 0 && !args[0].startsWith("-")) {
            String unknown = "command '" + args[0] + "' is unknown";
            return mistake(
                    new ParameterException(
                            withHandlers(top, out, err),
                            unknown + Suggestion.of(args[0], listed())));
        }
        if (args.length == 0) {
            top.usage(out);
            out.flush();
            return 2;
        }
        return status(withHandlers(top, out, err), args);
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
        boolean run = name.equals("run");
        line.setStopAtPositional(run);
        line.setExpandAtFiles(!run);
        Entry entry = COMMANDS.get(name);
        if (entry != null) {
            line.getCommandSpec().usageMessage().description(entry.about);
        }
        return status(withHandlers(line, out, err), renamed(name, args));
    }

    /** Executes, and ends with an error if the output of a success could not be written. */
    private static int status(CommandLine line, String[] args) {
        int status;
        try {
            status = line.execute(args);
        } catch (OutOfMemoryError e) {
            return failure(e, line);
        }
        if (status != 0 || !line.getOut().checkError()) {
            return status;
        }
        IOException e = ClosedOutput.error();
        boolean files = line.getCommand() instanceof AlsoToFiles c && c.writesFiles();
        return files && ClosedOutput.caused(e) ? status : failure(e, line);
    }

    /** Arguments with today's names of options. */
    private static String[] renamed(String command, String[] args) {
        Map<String, String> earlier = EARLIER.getOrDefault(command, Map.of());
        return Arrays.stream(args)
                .map(a -> {
                    int end = a.indexOf('=');
                    String name = end < 0 ? a : a.substring(0, end);
                    return earlier.getOrDefault(name, name) + a.substring(name.length());
                })
                .toArray(String[]::new);
    }

    /** A command as it would run, for those who read its options. */
    static CommandLine line(String name) {
        Entry entry = Objects.requireNonNull(COMMANDS.get(name));
        CommandLine line = new CommandLine(entry.create.apply(new String[0]));
        line.getCommandSpec().usageMessage().description(entry.about);
        return line;
    }

    /** All commands that help lists, below jccl: what completion and manual pages are made of. */
    public static CommandLine tree() {
        CommandLine top = new CommandLine(new Top());
        listed().forEach(name -> top.addSubcommand(name, line(name)));
        return top;
    }

    /** Commands under the titles of their groups. */
    private static String groups(Help help) {
        StringBuilder b = new StringBuilder();
        for (Group g : Group.values()) {
            Map<String, Help> some = new LinkedHashMap<>(help.subcommands());
            some.keySet().removeIf(name -> Objects.requireNonNull(COMMANDS.get(name)).group != g);
            if (g != Group.HIDDEN) {
                b.append(g.title).append(":%n".formatted()).append(help.commandList(some));
            }
        }
        return b.toString();
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

    /** The commands that help lists. */
    public static List<String> listed() {
        return COMMANDS.entrySet().stream()
                .filter(e -> e.getValue().group != Group.HIDDEN)
                .map(Map.Entry::getKey)
                .toList();
    }

    private static CommandLine withHandlers(CommandLine line, PrintWriter out, PrintWriter err) {
        return Parsed.byType(line)
                .setOut(out)
                .setErr(err)
                .setUsageHelpAutoWidth(true)
                .setParameterExceptionHandler((e, args) -> mistake(e))
                .setExecutionExceptionHandler((e, l, result) -> failure(e, l));
    }

    private static int mistake(ParameterException e) {
        CommandLine line = e.getCommandLine();
        String near = "";
        if (e instanceof UnmatchedArgumentException u) {
            String word = u.getUnmatched().getFirst().replaceFirst("=.*", "");
            near =
                    word.startsWith("--")
                            ? Suggestion.of(word, line.getCommandSpec().optionsMap().keySet())
                            : "";
        }
        boolean asks = near.endsWith("?") || String.valueOf(e.getMessage()).endsWith("?");
        say(line, e, near + (asks ? " Try '" : "; try '") + line.getCommandName() + " --help'");
        return 2;
    }

    private static int failure(Throwable e, CommandLine line) {
        if (ClosedOutput.caused(e)) {
            return ClosedOutput.STATUS;
        }
        say(line, e, "");
        return e instanceof IllegalArgumentException ? 2 : 1;
    }

    /**
     * What a rank that is a thread found, if it is an error of a file: its message names the file
     * and what is wrong, whichever rank found it.
     */
    private static Throwable ofFile(Throwable e) {
        return e instanceof JcclException
                        && e.getCause() instanceof IOException io
                        && (io.getClass() == IOException.class || io instanceof FileSystemException)
                        && String.valueOf(e.getMessage()).endsWith(" failed: " + io)
                ? io
                : e;
    }

    /** One line; the stack trace is for those who ask for it. */
    private static void say(CommandLine line, Throwable e, String more) {
        PrintWriter err = line.getErr();
        err.println(
                line.getCommandName()
                        + ": "
                        + Output.oneLine(Text.message(ofFile(e)).replaceAll("[\n\t]", " "))
                        + more);
        if ("1".equals(System.getenv(DEBUG))) {
            e.printStackTrace(err);
        }
        err.flush();
    }
}

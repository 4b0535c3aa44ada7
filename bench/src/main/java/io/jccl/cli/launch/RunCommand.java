package io.jccl.cli.launch;

import static io.jccl.cli.shell.Text.format;

import io.jccl.CpuBinding;
import io.jccl.LocalJob;
import io.jccl.cli.shell.AlsoToFiles;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Suggestion;
import io.jccl.cli.shell.Text;
import io.jccl.rendezvous.StoreSecret;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** Starts the ranks of a job as processes of this machine and waits for all of them. */
@Command(
        footer = {
            "",
            "  jccl run -n 4 all_reduce -b 8 -e 64M -f 2",
            "  jccl run -n 4 -- -cp trainer.jar com.example.Trainer --epochs 3",
            "  jccl run -n 4 --max-restarts 3 train --dp 4 --checkpoint /data/gpt",
            "  jccl run -n 8 --nnodes 2 --node-rank 1 --master-addr node0 -- -jar trainer.jar",
            "",
            "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, JCCL_JOB_ID, JCCL_BIND"
                    + " and, if none is set, a random JCCL_STORE_SECRET. Exit status: that of the"
                    + " rank that failed first, or 1 if standard output could not be written, or 0."
                    + " SIGINT, SIGTERM and SIGHUP are forwarded to all ranks; a second signal, such"
                    + " as another Ctrl-C, kills them.",
        })
public final class RunCommand extends Subcommand implements AlsoToFiles {
    /** Variables that this command sets itself. */
    private static final Pattern OURS =
            Pattern.compile(
                    "RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_.*|TORCHELASTIC_RESTART_COUNT"
                            + "|TORCHELASTIC_MAX_RESTARTS|JCCL_BIND|JCCL_NO_BUILD|JCCL_RUN_PID");

    /** That of the run, which is free where several machines have to agree on it. */
    private static final String JOB = "JCCL_JOB_ID";

    /** Options that set some of them. */
    private static final Map<String, String> OPTIONS =
            Map.of(CpuBinding.VARIABLE, "--bind", "TORCHELASTIC_MAX_RESTARTS", "--max-restarts");

    /** The exit status of jccl commands for a usage error, which a restart cannot repair. */
    private static final int USAGE = 2;

    private static final int LARGEST_PORT = 65_535;

    private final Function<Boolean, List<String>> prefix;
    private final Collection<String> commands;

    @Option(
            names = {"-n", "--nproc"},
            paramLabel = "<count>",
            required = true,
            converter = Count.Positive.class,
            description = "Number of ranks on this machine.")
    private int count;

    @Option(
            names = "--nnodes",
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description =
                    "Machines, on each of which jccl run is started with the same -n (default: 1).")
    private int nodes = 1;

    @Option(
            names = "--node-rank",
            paramLabel = "<number>",
            converter = Count.class,
            description = "Which of the machines this is, from 0 (default: 0).")
    private int node;

    @Option(
            names = "--master-addr",
            paramLabel = "<address>",
            description =
                    "With --nnodes: an address of machine 0, where its rank 0 serves the store"
                            + " (default: MASTER_ADDR).")
    private @Nullable String masterAddress;

    @Option(
            names = "--master-port",
            paramLabel = "<port>",
            converter = Count.Positive.class,
            description = "With --nnodes: a free port there (default: MASTER_PORT, or 29500).")
    private @Nullable Integer masterPort;

    @Option(
            names = "-x",
            paramLabel = "<name[=value]>",
            description =
                    "A variable for all ranks, which inherit this command's anyway; without a"
                            + " value it has to be set here. May be repeated.")
    private List<String> variables = new ArrayList<>();

    @Option(
            names = "--max-restarts",
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "How often all ranks are restarted after one has failed;"
                            + " TORCHELASTIC_RESTART_COUNT has the number of the restart (default:"
                            + " 0).")
    private int maxRestarts;

    @Option(
            names = "--min-ranks",
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description =
                    "How many ranks have to be left for the others to continue when some fail;"
                            + " JCCL_STORE names a store for them (default: all of them).")
    private @Nullable Integer minRanks;

    @Option(
            names = "--log-dir",
            paramLabel = "<folder>",
            description =
                    "Also append what each rank prints to rank-N.out and rank-N.err in this folder.")
    private @Nullable Path logs;

    @Option(names = "--timestamps", description = "Begin each line with the time.")
    private boolean timestamps;

    /** Which output lines begin with their rank. */
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
                    "How long the others may continue after a rank has failed, to report what"
                            + " they saw (default: 5).")
    private int grace = 5;

    @Option(
            names = "--kill-after",
            paramLabel = "<seconds>",
            converter = Count.class,
            description =
                    "How long ranks may take to end after a signal, before SIGKILL (default:"
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
     * @param commands the names of commands of jccl
     */
    public RunCommand(String[] arguments, Collection<String> commands) {
        this(
                jccl ->
                        jccl
                                ? JavaCommand.jccl(System.getenv(), arguments)
                                : List.of(System.getProperty("jdk.module.path", "")),
                commands);
    }

    /**
     * Creates the command for a test.
     *
     * @param prefix given true, the command line that starts jccl; given false, the module path
     *     only
     * @param commands the names of commands of jccl
     */
    public RunCommand(Function<Boolean, List<String>> prefix, Collection<String> commands) {
        this.prefix = prefix;
        this.commands = commands;
    }

    @Override
    public Integer call() throws InterruptedException {
        require(
                count <= RankOptions.MOST_RANKS,
                format(
                        "-n/--nproc is %s, expected 1 to %s; give such a number",
                        count, RankOptions.MOST_RANKS));
        RankProcesses.Settings settings =
                new RankProcesses.Settings(
                        commandLine(),
                        count,
                        nodes,
                        node,
                        least(),
                        variables(),
                        bind.in(System.getenv(), line()),
                        marks.none
                                ? RankProcesses.Marks.NONE
                                : marks.all ? RankProcesses.Marks.ALL : RankProcesses.Marks.OTHERS,
                        timestamps,
                        folder(),
                        grace,
                        killAfter,
                        maxRestarts);
        checkSharedFolder();
        boolean ours = commands.contains(command.getFirst());
        for (int restart = 0; ; restart++) {
            RankProcesses ranks = new RankProcesses(settings, restart, out(), err());
            int status = ranks.run();
            if (status == 0) {
                return ranks.outputStatus();
            }
            if (restart == maxRestarts || (ours && status == USAGE) || ranks.wasEnded()) {
                return status;
            }
            err().println(
                            format(
                                    "jccl run: restarting all ranks, restart %s of %s",
                                    restart + 1, maxRestarts));
            err().flush();
        }
    }

    /** How many ranks have to be left to continue. */
    private int least() {
        require(
                nodes == 1 || (maxRestarts == 0 && minRanks == null),
                "--max-restarts and --min-ranks see the ranks of one machine, but --nnodes is "
                        + nodes
                        + "; leave them out, and restart the whole run from its checkpoint");
        int least = minRanks == null ? count : minRanks;
        require(
                least <= count,
                "--min-ranks is " + least + ", expected 1 to " + count + ", the number of ranks");
        return least;
    }

    /** Variables of the ranks' environment that this process's lacks. */
    private Map<String, String> variables() {
        Map<String, String> all = new HashMap<>();
        for (String v : variables) {
            String name = v.replaceFirst("(?s)=.*", "");
            require(!name.isEmpty(), "-x is '" + v + "', expected NAME or NAME=value");
            String option = OPTIONS.get(name);
            require(
                    !OURS.matcher(name).matches() && (nodes > 1 || !name.equals(JOB)),
                    "-x sets "
                            + name
                            + ", which jccl run sets itself; "
                            + (option == null ? "leave it out" : "use " + option));
            require(
                    !name.equals("JCCL_SHM_DIR") || name.equals(v),
                    "-x sets JCCL_SHM_DIR, but jccl run uses that folder too; set it for jccl run");
            String value = v.contains("=") ? v.substring(v.indexOf('=') + 1) : System.getenv(name);
            require(
                    value != null,
                    "-x names " + name + ", which is not set here; give -x " + name + "=value");
            all.put(name, String.valueOf(value));
        }
        require(
                node < nodes,
                format(
                        "--node-rank is %s, expected less than %s, which --nnodes gives",
                        node, nodes));
        if (nodes == 1) {
            require(
                    masterAddress == null && masterPort == null,
                    "--master-addr and --master-port are for --nnodes of 2 or more");
            return all;
        }
        Map<String, String> here = new HashMap<>(System.getenv());
        here.putAll(all);
        String address = masterAddress == null ? here.get("MASTER_ADDR") : masterAddress;
        String port =
                masterPort == null
                        ? here.getOrDefault("MASTER_PORT", "29500")
                        : masterPort.toString();
        require(
                address != null,
                "--nnodes is "
                        + nodes
                        + ", but no meeting point is given: give --master-addr, an"
                        + " address of machine 0, the same on all");
        require(
                port.matches("[1-9][0-9]{0,4}") && Integer.parseInt(port) <= LARGEST_PORT,
                format(
                        "the port of --master-port or MASTER_PORT is %s, expected 1 to %s",
                        port, LARGEST_PORT));
        require(
                StoreSecret.isIn(here),
                "no secret: set JCCL_STORE_SECRET or JCCL_STORE_SECRET_FILE on all machines, to"
                        + " what openssl rand -hex 32 prints on one of them");
        all.put("MASTER_ADDR", String.valueOf(address));
        all.put("MASTER_PORT", port);
        return all;
    }

    @Override
    public boolean writesFiles() {
        return logs != null;
    }

    /** Before there are ranks that could not meet. */
    private void checkSharedFolder() {
        try {
            LocalJob.sharedFolder();
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        }
    }

    /** The log folder, created if it did not exist. */
    private @Nullable Path folder() {
        if (logs == null) {
            return null;
        }
        try {
            OutputFiles.checkNamed("--log-dir", logs);
            return Files.createDirectories(logs);
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        } catch (IOException e) {
            throw mistake("--log-dir '" + logs + "' cannot be made: " + Text.message(e), e);
        }
    }

    private List<String> commandLine() {
        List<String> all;
        if (commands.contains(command.getFirst())) {
            if (command.getFirst().equals("run")) {
                throw mistake("run cannot start run; give another command, such as all_reduce");
            }
            all = new ArrayList<>(prefix.apply(true));
            all.addAll(command);
        } else {
            checkProgram(command.getFirst());
            String modulePath = prefix.apply(false).getFirst();
            if (modulePath.isEmpty()) {
                throw new IllegalStateException(
                        "'"
                                + command.getFirst()
                                + "' is not a jccl command, and for a Java program"
                                + " JCCL itself must be on the module path; start it by the jccl"
                                + " script");
            }
            all = JavaCommand.program(modulePath, command);
        }
        return all;
    }

    /** A word that is not an option of java must be a program; it is probably misspelt. */
    private void checkProgram(String word) {
        boolean program =
                word.startsWith("-")
                        || word.startsWith("@")
                        || !System.getenv().getOrDefault("CLASSPATH", "").isEmpty()
                        || Files.exists(Path.of(word))
                        || Files.exists(Path.of(word.replace('.', '/') + ".class"));
        require(
                program,
                "'"
                        + word
                        + "' is not a command of jccl, and there is no such program or class here"
                        + Suggestion.of(word, commands));
    }
}

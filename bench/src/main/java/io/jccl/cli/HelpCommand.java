package io.jccl.cli;

import io.jccl.cli.shell.Version;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** The help of a command, as its own {@code --help} prints it. */
@Command(
        mixinStandardHelpOptions = true,
        usageHelpAutoWidth = true,
        versionProvider = Version.class)
final class HelpCommand implements Callable<Integer> {
    @Spec private @Nullable CommandSpec spec;

    @Parameters(
            paramLabel = "COMMAND",
            arity = "0..1",
            description = "The command to explain (default: all, in a list).")
    private @Nullable String command;

    @Override
    public Integer call() {
        CommandLine line = Objects.requireNonNull(spec).commandLine();
        String[] words =
                command == null ? new String[] {"--help"} : new String[] {command, "--help"};
        return Main.execute(words, line.getOut(), line.getErr());
    }
}

package io.jccl.cli;

import io.jccl.cli.shell.Subcommand;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Parameters;

/** The help of a command, as its own {@code --help} prints it. */
final class HelpCommand extends Subcommand {
    @Parameters(
            paramLabel = "COMMAND",
            arity = "0..1",
            description = "The command to explain (default: all, in a list).")
    private @Nullable String command;

    @Override
    public Integer call() {
        String[] words =
                command == null ? new String[] {"--help"} : new String[] {command, "--help"};
        return Main.execute(words, out(), err());
    }
}

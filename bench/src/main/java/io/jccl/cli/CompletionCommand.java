package io.jccl.cli;

import io.jccl.cli.shell.Subcommand;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.AutoComplete;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;

/** Prints a script by which bash and zsh complete commands, options and their values. */
@Command(
        footer = {
            "",
            "  source <(jccl completion)                 # in ~/.bashrc or ~/.zshrc",
            "  jccl completion > /etc/bash_completion.d/jccl",
        })
final class CompletionCommand extends Subcommand {
    /** Labels that list all values: {@code <core|numa|none>}. */
    private static final Pattern VALUES = Pattern.compile("<([a-z0-9_-]+(?:\\|[a-z0-9_-]+)+)>");

    @Override
    public Integer call() {
        CommandLine top = Main.tree();
        for (CommandLine line : top.getSubcommands().values()) {
            CommandSpec command = line.getCommandSpec();
            for (OptionSpec o : List.copyOf(command.options())) {
                Matcher values = VALUES.matcher(o.paramLabel());
                if (values.matches() && o.group() == null) {
                    command.remove(o);
                    command.addOption(
                            o.toBuilder()
                                    .completionCandidates(
                                            Arrays.asList(values.group(1).split("\\|", -1)))
                                    .build());
                }
            }
        }
        PrintWriter out = out();
        out.print(AutoComplete.bash("jccl", top));
        out.flush();
        return 0;
    }
}

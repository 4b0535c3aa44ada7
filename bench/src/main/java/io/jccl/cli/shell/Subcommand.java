package io.jccl.cli.shell;

import static io.jccl.cli.shell.Text.format;

import java.io.PrintWriter;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** What commands of {@code jccl} have in common: help, version, output and how mistakes end. */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class)
public abstract class Subcommand implements Callable<Integer> {
    @Spec private @Nullable CommandSpec spec;

    /** The command line that runs it. */
    protected final CommandLine line() {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        return spec.commandLine();
    }

    /** Standard output. */
    protected final PrintWriter out() {
        return line().getOut();
    }

    /** Standard error. */
    protected final PrintWriter err() {
        return line().getErr();
    }

    /** A mistake on the command line. */
    protected final ParameterException mistake(String message) {
        return new ParameterException(line(), message);
    }

    /** The same, with what has led to it. */
    protected final ParameterException mistake(@Nullable String message, Exception cause) {
        return new ParameterException(line(), message, cause);
    }

    /** The same, by the message of what has led to it. */
    protected final ParameterException mistake(Exception cause) {
        return mistake(cause.getMessage(), cause);
    }

    /** Throws unless a condition holds. */
    protected final void require(boolean holds, String otherwise) {
        if (!holds) {
            throw mistake(otherwise);
        }
    }

    /** Throws unless the value of an option is within its bounds. */
    protected final void range(String option, long value, long least, long most) {
        require(
                value >= least && value <= most,
                format("%s is %d, expected %d to %d", option, value, least, most));
    }
}

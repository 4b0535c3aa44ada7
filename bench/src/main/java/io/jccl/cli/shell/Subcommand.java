package io.jccl.cli.shell;

import static io.jccl.cli.shell.Text.format;

import io.jccl.device.Cuda;
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
    /** What is wrong with {@code --device cuda} where CUDA finds no GPU. */
    public static final String NO_GPU =
            "--device is cuda, but this process sees no GPU; use --device host, or run jccl doctor";

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

    /**
     * Whether {@code --device} is cuda rather than host.
     *
     * @param device its value
     * @throws ParameterException if it is neither, or this process sees no GPU
     */
    protected final boolean isCuda(String device) {
        boolean cuda = device.equals("cuda");
        require(
                cuda || device.equals("host"),
                "--device is '" + device + "', expected host or cuda");
        require(!cuda || Cuda.deviceCount() > 0, NO_GPU);
        return cuda;
    }

    /** Throws unless the value of an option is within its bounds. */
    protected final void range(String option, long value, long least, long most) {
        require(
                value >= least && value <= most,
                format("%s is %d, expected %d to %d", option, value, least, most));
    }
}

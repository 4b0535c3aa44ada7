package io.jccl.cli;

import io.jccl.cli.shell.Version;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Spec;

/** {@code jccl version}. */
@Command(mixinStandardHelpOptions = true, versionProvider = Version.class)
final class VersionCommand implements Callable<Integer> {
    @Spec private @Nullable CommandSpec spec;

    @Override
    public Integer call() {
        if (spec != null) {
            spec.commandLine().printVersionHelp(spec.commandLine().getOut());
        }
        return 0;
    }
}

package io.jccl.cli;

import io.jccl.cli.shell.Subcommand;

/** {@code jccl version}. */
final class VersionCommand extends Subcommand {
    @Override
    public Integer call() {
        line().printVersionHelp(out());
        return 0;
    }
}

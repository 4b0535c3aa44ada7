package io.jccl.cli.shell;

/** A command that goes on when nobody reads its output, for the sake of files that it writes. */
public interface AlsoToFiles {
    /** Whether it was asked to write files. */
    boolean writesFiles();
}

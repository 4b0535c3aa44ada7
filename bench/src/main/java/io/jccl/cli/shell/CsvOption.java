package io.jccl.cli.shell;

import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** {@code --csv[=FILE]}, for tables. */
public final class CsvOption extends FileOption {
    /** The option in messages. */
    public static final String NAME = "--csv";

    @Option(
            names = NAME,
            arity = "0..1",
            fallbackValue = STANDARD,
            paramLabel = "<file>",
            description =
                    "Write CSV to a file as well; without one, or with -, print it instead of text.")
    private @Nullable String file;

    /** Not requested, until picocli sets it. */
    public CsvOption() {
        super(NAME);
    }

    @Override
    @Nullable String value() {
        return file;
    }
}

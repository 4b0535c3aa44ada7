package io.jccl.cli.shell;

import java.util.Map;
import java.util.Stack;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.IParameterPreprocessor;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;

/** {@code --json[=FILE]}, the same in every command. */
public final class JsonOption extends FileOption {
    /** The option in messages. */
    public static final String NAME = "--json";

    @Option(
            names = {"-J", NAME},
            arity = "0..1",
            fallbackValue = STANDARD,
            preprocessor = Attached.class,
            paramLabel = "<file>",
            description =
                    "Write JSON to a file as well; without one, or with -, print it instead of text.")
    private @Nullable String file;

    /** Where a command takes words of its own, only {@code --json=FILE} names a file. */
    static final class Attached implements IParameterPreprocessor {
        @Override
        @SuppressWarnings("JdkObsolete") // picocli's signature
        public boolean preprocess(
                Stack<String> args, CommandSpec spec, ArgSpec option, Map<String, Object> info) {
            if (spec.positionalParameters().isEmpty() || !" ".equals(info.get("separator"))) {
                return false;
            }
            option.setValue(STANDARD);
            return true;
        }
    }

    /** Not requested, until picocli sets it. */
    public JsonOption() {
        super(NAME);
    }

    @Override
    @Nullable String value() {
        return file;
    }
}

package io.jccl.cli.shell;

import io.jccl.CpuBinding;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.TypeConversionException;

/** Which CPUs ranks of the host engine run on: the {@code jccl} command binds by default. */
public final class BindOption {
    @Option(
            names = "--bind",
            paramLabel = "<core|numa|none>",
            converter = Converter.class,
            description =
                    "CPUs of the ranks of the host engine: core gives each its own, numa a NUMA"
                            + " node, none leaves it to the scheduler. Nothing is bound where there"
                            + " are fewer CPUs than ranks (default: core, or JCCL_BIND).")
    private @Nullable CpuBinding binding;

    /** The binding to use; a wrong one in the environment is a mistake of the command line. */
    public CpuBinding in(Map<String, String> environment, CommandLine line) {
        if (binding != null) {
            return binding;
        }
        try {
            return environment.getOrDefault(CpuBinding.VARIABLE, "").isBlank()
                    ? CpuBinding.CORE
                    : CpuBinding.of(environment);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
    }

    static final class Converter implements ITypeConverter<CpuBinding> {
        @Override
        public CpuBinding convert(String value) {
            return CpuBinding.named(value)
                    .orElseThrow(() ->
                            new TypeConversionException(
                                    "'"
                                            + value
                                            + "' is not a binding, expected core, numa or"
                                            + " none"));
        }
    }
}

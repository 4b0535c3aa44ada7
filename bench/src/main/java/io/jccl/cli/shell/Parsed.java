package io.jccl.cli.shell;

import io.jccl.Algorithm;
import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.LowRank;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.topology.Operation;
import java.util.Set;
import java.util.function.Function;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.TypeConversionException;

/** Turns an option's value into what a parser makes of it, whose message is the user's. */
public abstract class Parsed<T> implements ITypeConverter<T> {
    private final Function<String, T> parser;

    /** With the parser of a type, which refuses a value by an IllegalArgumentException. */
    protected Parsed(Function<String, T> parser) {
        this.parser = parser;
    }

    @Override
    public final T convert(String value) {
        try {
            return parser.apply(value);
        } catch (IllegalArgumentException e) {
            throw new TypeConversionException(e.getMessage());
        }
    }

    /** Has options without a converter of their own converted by their type. */
    public static CommandLine byType(CommandLine line) {
        for (ArgSpec arg : line.getCommandSpec().args()) {
            for (Class<?> type : arg.auxiliaryTypes()) {
                if (ByType.TYPES.contains(type.getName())) {
                    register(line, type);
                }
            }
        }
        return line;
    }

    private static <T> void register(CommandLine line, Class<T> type) {
        line.registerConverter(type, new ByType<>(type.getName()));
    }

    /**
     * Finds the parser by the name of the type, and once there is a value: every command and rank
     * would load all types at its start, and make a parser of each.
     */
    private static final class ByType<T> extends Parsed<T> {
        static final Set<String> TYPES =
                Set.of(
                        "int",
                        "java.lang.Integer",
                        "long",
                        "java.lang.Long",
                        "double",
                        "java.lang.Double",
                        "io.jccl.Algorithm",
                        "io.jccl.cli.shell.Engine",
                        "io.jccl.offload.memplan.AttentionKernel",
                        "io.jccl.offload.memplan.LowRank$Matrices",
                        "io.jccl.offload.memplan.OptimizerKind",
                        "io.jccl.offload.memplan.Precision",
                        "io.jccl.offload.memplan.Recomputation",
                        "io.jccl.offload.memplan.TrainingSystem",
                        "io.jccl.topology.Operation");

        @SuppressWarnings("unchecked")
        ByType(String type) {
            super(value -> (T) parsed(type, value));
        }

        private static Object parsed(String type, String value) {
            return switch (type) {
                case "int", "java.lang.Integer" -> new Count(Integer.MIN_VALUE).convert(value);
                case "long", "java.lang.Long" -> parseLong(value);
                case "double", "java.lang.Double" -> parseDouble(value);
                case "io.jccl.Algorithm" -> Algorithm.ofName(value);
                case "io.jccl.cli.shell.Engine" -> Engine.of(value);
                case "io.jccl.offload.memplan.AttentionKernel" -> AttentionKernel.of(value);
                case "io.jccl.offload.memplan.LowRank$Matrices" -> LowRank.Matrices.of(value);
                case "io.jccl.offload.memplan.OptimizerKind" -> OptimizerKind.of(value);
                case "io.jccl.offload.memplan.Precision" -> Precision.of(value);
                case "io.jccl.offload.memplan.Recomputation" -> Recomputation.of(value);
                case "io.jccl.offload.memplan.TrainingSystem" -> TrainingSystem.of(value);
                case "io.jccl.topology.Operation" -> Operation.of(value);
                default -> throw new IllegalStateException(type + "; please report it");
            };
        }
    }

    private static long parseLong(String value) {
        try {
            return Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "'%s' is not a whole number from %s to %s; give one"
                            .formatted(value, Long.MIN_VALUE, Long.MAX_VALUE),
                    e);
        }
    }

    private static double parseDouble(String value) {
        try {
            return Double.parseDouble(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "'" + value + "' is not a number; give one, such as 2, 0.5 or 1e-3", e);
        }
    }
}

package io.jccl.cli.shell;

import io.jccl.Algorithm;
import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.LowRank;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.topology.Operation;
import java.util.function.Function;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Turns an option's value into what a parser makes of it, whose message is the user's. */
public class Parsed<T> implements ITypeConverter<T> {
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
        Count whole = new Count(Integer.MIN_VALUE);
        Parsed<Long> large = new Parsed<>(Parsed::large);
        Parsed<Double> number = new Parsed<>(Parsed::number);
        return line.registerConverter(int.class, whole)
                .registerConverter(Integer.class, whole)
                .registerConverter(long.class, large)
                .registerConverter(Long.class, large)
                .registerConverter(double.class, number)
                .registerConverter(Double.class, number)
                .registerConverter(Algorithm.class, new Parsed<>(Algorithm::ofName))
                .registerConverter(AttentionKernel.class, new Parsed<>(AttentionKernel::of))
                .registerConverter(Engine.class, new Parsed<>(Engine::of))
                .registerConverter(LowRank.Matrices.class, new Parsed<>(LowRank.Matrices::of))
                .registerConverter(Operation.class, new Parsed<>(Operation::of))
                .registerConverter(OptimizerKind.class, new Parsed<>(OptimizerKind::of))
                .registerConverter(Precision.class, new Parsed<>(Precision::of))
                .registerConverter(Recomputation.class, new Parsed<>(Recomputation::of))
                .registerConverter(TrainingSystem.class, new Parsed<>(TrainingSystem::of));
    }

    private static long large(String value) {
        try {
            return Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "'%s' is not a whole number from %s to %s; give one"
                            .formatted(value, Long.MIN_VALUE, Long.MAX_VALUE),
                    e);
        }
    }

    private static double number(String value) {
        try {
            return Double.parseDouble(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "'" + value + "' is not a number; give one, such as 2, 0.5 or 1e-3", e);
        }
    }
}

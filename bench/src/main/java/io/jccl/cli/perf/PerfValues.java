package io.jccl.cli.perf;

import io.jccl.NcclSteering;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Values of the benchmarks' options. */
final class PerfValues {
    private PerfValues() {}

    /** One value or all of them. */
    record Choice<T>(List<T> values) {}

    /** A digit from 0 on, as nccl-tests writes choices. */
    private abstract static class Digit implements ITypeConverter<Integer> {
        private final int most;

        Digit(int most) {
            this.most = most;
        }

        @Override
        public Integer convert(String value) {
            if (value.length() == 1 && value.charAt(0) >= '0' && value.charAt(0) <= '0' + most) {
                return value.charAt(0) - '0';
            }
            throw new TypeConversionException(
                    "'"
                            + value
                            + "' is not "
                            + (most == 1 ? "0 or 1" : "a number from 0 to " + most)
                            + "; give one of them");
        }
    }

    /** No or yes. */
    static final class Flag extends Digit {
        Flag() {
            super(1);
        }
    }

    /** One of three. */
    static final class UpTo2 extends Digit {
        UpTo2() {
            super(2);
        }
    }

    /** One of four. */
    static final class UpTo3 extends Digit {
        UpTo3() {
            super(3);
        }
    }

    /** A rank, or all of them as -1. */
    static final class Root implements ITypeConverter<Integer> {
        @Override
        public Integer convert(String value) {
            try {
                int number = value.equalsIgnoreCase("all") ? -1 : Integer.parseInt(value);
                if (number >= -1) {
                    return number;
                }
            } catch (NumberFormatException e) {
                // Reported below, as numbers out of range are.
            }
            throw new TypeConversionException(
                    "'" + value + "' is not a rank; give a number from 0, or all");
        }
    }

    static final class Seconds implements ITypeConverter<Duration> {
        @Override
        public Duration convert(String value) {
            try {
                double seconds = Double.parseDouble(value);
                if (seconds >= 0.001 && seconds <= 1e9) {
                    return Duration.ofMillis(Math.round(seconds * 1000));
                }
            } catch (NumberFormatException e) {
                // Reported below, as numbers out of range are.
            }
            throw new TypeConversionException(
                    "'" + value + "' is not a time; give seconds, from 0.001 to 1e9, such as 30");
        }
    }

    /** Data types by the names of nccl-tests, of the API, and such as fp32, in any case. */
    static final class Types implements ITypeConverter<Choice<DataType>> {
        private static final Map<String, DataType> SHORT =
                Map.ofEntries(
                        Map.entry("fp16", DataType.FLOAT16),
                        Map.entry("fp32", DataType.FLOAT32),
                        Map.entry("fp64", DataType.FLOAT64),
                        Map.entry("f16", DataType.FLOAT16),
                        Map.entry("f32", DataType.FLOAT32),
                        Map.entry("f64", DataType.FLOAT64),
                        Map.entry("bf16", DataType.BFLOAT16),
                        Map.entry("fp8e4m3", DataType.FLOAT8E4M3),
                        Map.entry("fp8e5m2", DataType.FLOAT8E5M2));

        @Override
        public Choice<DataType> convert(String value) {
            if (value.equalsIgnoreCase("all")) {
                return new Choice<>(List.of(DataType.values()));
            }
            DataType named = SHORT.get(value.toLowerCase(Locale.ROOT).replace("_", ""));
            try {
                return new Choice<>(List.of(named == null ? DataType.ofLabel(value) : named));
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage() + ", fp32 and the like, or all");
            }
        }
    }

    /** Reductions by their nccl-tests names, in any case. */
    static final class Ops implements ITypeConverter<Choice<ReduceOp.Kind>> {
        @Override
        public Choice<ReduceOp.Kind> convert(String value) {
            List<ReduceOp.Kind> found =
                    Arrays.stream(ReduceOp.Kind.values())
                            .filter(k ->
                                    value.equalsIgnoreCase("all")
                                            || ReduceOp.label(k).equalsIgnoreCase(value))
                            .toList();
            if (found.isEmpty()) {
                throw new TypeConversionException(
                        "reduction '"
                                + value
                                + "' is unknown, expected sum, prod, min, max, avg, mulsum or all");
            }
            return new Choice<>(found);
        }
    }

    /** Whether a plan is enforced. */
    static final class Steering implements ITypeConverter<NcclSteering.Mode> {
        @Override
        public NcclSteering.Mode convert(String value) {
            return switch (value) {
                case "advise" -> NcclSteering.Mode.ADVISE;
                case "enforce" -> NcclSteering.Mode.ENFORCE;
                default ->
                        throw new TypeConversionException(
                                "'" + value + "' is neither advise nor enforce; give one of them");
            };
        }
    }
}

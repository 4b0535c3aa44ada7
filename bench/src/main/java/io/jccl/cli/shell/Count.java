package io.jccl.cli.shell;

import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** A whole number, 0 or more. */
public final class Count implements ITypeConverter<Integer> {
    @Override
    public Integer convert(String value) {
        try {
            int number = Integer.parseInt(value);
            if (number >= 0) {
                return number;
            }
        } catch (NumberFormatException e) {
            // Reported below, as negative numbers are.
        }
        throw new TypeConversionException(
                "'" + value + "' is not a count; give a whole number, 0 or more");
    }

    /** A whole number, 1 or more. */
    public static final class Positive implements ITypeConverter<Integer> {
        @Override
        public Integer convert(String value) {
            int number;
            try {
                number = Integer.parseInt(value);
            } catch (NumberFormatException e) {
                number = 0;
            }
            if (number < 1) {
                throw new TypeConversionException(
                        "'" + value + "' is not possible; give a whole number, 1 or more");
            }
            return number;
        }
    }
}

package io.jccl.cli.shell;

import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** A whole number, 0 or more. */
public class Count implements ITypeConverter<Integer> {
    private final int least;

    public Count() {
        this(0);
    }

    /** A whole number, this or more. */
    Count(int least) {
        this.least = least;
    }

    @Override
    public final Integer convert(String value) {
        try {
            int number = Integer.parseInt(value);
            if (number >= least) {
                return number;
            }
        } catch (NumberFormatException e) {
            // Reported below, as numbers out of range are.
        }
        throw new TypeConversionException(
                "'%s' is not a whole number from %s to %s; give one"
                        .formatted(value, least, Integer.MAX_VALUE));
    }

    /** A whole number, 1 or more. */
    public static final class Positive extends Count {
        public Positive() {
            super(1);
        }
    }
}

package io.jccl.cli.shell;

import java.util.function.Function;
import picocli.CommandLine.ITypeConverter;
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
}

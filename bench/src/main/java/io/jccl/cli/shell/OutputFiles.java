package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Model.PositionalParamSpec;
import picocli.CommandLine.ParameterException;

/** The files that a command is to write: checked before its work rather than after it. */
public final class OutputFiles {
    private final CommandLine line;

    /** Where the options' files are, with the options. */
    private final Map<Path, String> options = new HashMap<>();

    /** The option that is printed, if there is one. */
    private @Nullable String printed;

    /** None yet, of a command. */
    public OutputFiles(CommandLine line) {
        this.line = line;
    }

    /**
     * Adds the file of an option, if it has one.
     *
     * @throws ParameterException as for a file, or if another option is printed too
     */
    public OutputFiles add(FileOption option) {
        if (option.isPrinted()) {
            if (printed != null) {
                throw new ParameterException(
                        line,
                        printed
                                + " and "
                                + option.name()
                                + " both go to standard output; name a file for one of them");
            }
            printed = option.name();
        }
        return add(option.name(), option.file());
    }

    /**
     * Adds a file, which is never printed.
     *
     * @param option the option that names it
     * @param file null if there is none
     * @return this
     * @throws ParameterException if it cannot be written, or is that of another option; the message
     *     suggests a remedy
     */
    public OutputFiles add(String option, @Nullable Path file) {
        if (file == null) {
            return this;
        }
        String before;
        try {
            checkNamed(option, file);
            Output.checkWritable(option, file);
            Path place = Output.place(file);
            before = place == null ? null : options.putIfAbsent(place, option);
        } catch (IOException | IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
        if (before != null) {
            throw new ParameterException(
                    line, before + " and " + option + " are both '" + file + "'; give two files");
        }
        return this;
    }

    /**
     * Refuses what another option would print, rather than make a file or folder of that name.
     *
     * @throws IllegalArgumentException if the name is {@code -}
     */
    public static void checkNamed(String option, Path file) {
        if (file.toString().equals(FileOption.STANDARD)) {
            throw new IllegalArgumentException(
                    option + " is '-', but cannot go to standard output; give a name");
        }
    }

    /**
     * Refuses to write over what the command reads: files that its other options and parameters
     * name.
     *
     * @throws ParameterException if one was added
     */
    public void checkNotRead() throws IOException {
        List<Path> read = new ArrayList<>();
        CommandLine.ParseResult given = line.getParseResult();
        for (OptionSpec o : given.matchedOptions()) {
            if (Stream.of(o.names()).noneMatch(options::containsValue)) {
                addFiles(o, read);
            }
        }
        for (PositionalParamSpec p : given.matchedPositionals()) {
            addFiles(p, read);
        }
        checkNotRead(read);
    }

    private static void addFiles(ArgSpec argument, List<Path> read) {
        Class<?> type = argument.auxiliaryTypes()[0];
        if (type == Path.class || type == String.class) {
            for (String name : argument.originalStringValues()) {
                try {
                    read.add(Path.of(name));
                } catch (InvalidPathException e) {
                    // It names no file.
                }
            }
        }
    }

    /**
     * Refuses to write over what the command reads.
     *
     * @param read files and folders, which need not exist
     * @throws ParameterException if one was added
     */
    public void checkNotRead(List<Path> read) throws IOException {
        for (Path file : read) {
            String option = Files.exists(file) ? optionOf(file) : null;
            if (option != null) {
                throw new ParameterException(
                        line,
                        option + " '" + file + "' is also a file to read; give another to write");
            }
        }
    }

    private @Nullable String optionOf(Path file) throws IOException {
        try {
            return options.get(file.toRealPath());
        } catch (NoSuchFileException e) {
            return null; // a pipe, or a file without a name
        }
    }
}

package io.jccl.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Path;

/**
 * Discovery in a process of its own, because a library that was loaded stays. The arguments are
 * done in order: {@code map=FILE} loads a file as other software in the process would, {@code
 * discover=NAME} and {@code files=NAME} print what the library of that name comes to.
 */
final class DiscoverMain {
    private DiscoverMain() {}

    public static void main(String[] args) {
        for (String arg : args) {
            int end = arg.indexOf('=');
            String value = arg.substring(end + 1);
            switch (arg.substring(0, end)) {
                case "map" -> SymbolLookup.libraryLookup(Path.of(value), Arena.global());
                case "discover" -> print(NativeLibraries.discover(NativeLibrary.valueOf(value)));
                case "files" ->
                        NativeLibraries.candidates(NativeLibrary.valueOf(value))
                                .forEach(System.out::println);
                default -> throw new IllegalArgumentException(arg);
            }
        }
    }

    private static void print(Discovery discovery) {
        switch (discovery) {
            case Discovery.Found found -> {
                System.out.println("FOUND " + found.loaded());
                found.attempts().forEach(attempt -> System.out.println("  " + attempt));
            }
            case Discovery.Missing missing -> System.out.println("MISSING " + missing.message());
        }
    }
}

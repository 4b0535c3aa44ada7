package io.jccl.bindings;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;

/**
 * Discovery in a process of its own, because a library that was loaded stays. The arguments are
 * done in order: {@code map=FILE} loads a file as other software in the process would, {@code
 * delete=FILE} deletes one, {@code discover=NAME} and {@code files=NAME} print what the library of
 * that name comes to, {@code threads=NAME} asks from many threads at once, {@code nccl=} asks for
 * the call table.
 */
final class DiscoverMain {
    private static final int THREADS = 8;

    private DiscoverMain() {}

    public static void main(String[] args) throws IOException, InterruptedException {
        for (String arg : args) {
            int end = arg.indexOf('=');
            String value = arg.substring(end + 1);
            switch (arg.substring(0, end)) {
                case "map" -> SymbolLookup.libraryLookup(Path.of(value), Arena.global());
                case "delete" -> Files.delete(Path.of(value));
                case "discover" -> print(NativeLibraries.discover(NativeLibrary.valueOf(value)));
                case "files" ->
                        NativeLibraries.candidates(NativeLibrary.valueOf(value))
                                .forEach(System.out::println);
                case "threads" -> threads(NativeLibrary.valueOf(value));
                case "nccl" -> {
                    try {
                        System.out.println("TABLE " + NativeLibraries.nccl().library());
                    } catch (NativeLibraryUnavailableException e) {
                        System.out.println("UNAVAILABLE " + e.getMessage());
                    }
                }
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

    private static void threads(NativeLibrary library) throws InterruptedException {
        Set<Discovery> outcomes =
                Collections.synchronizedSet(Collections.newSetFromMap(new IdentityHashMap<>()));
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Thread.Builder builder = i % 2 == 0 ? Thread.ofPlatform() : Thread.ofVirtual();
            threads.add(builder.start(() -> outcomes.add(NativeLibraries.discover(library))));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("OUTCOMES " + outcomes.size());
    }
}

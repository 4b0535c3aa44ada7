package io.jccl.cli.doctor;

import static io.jccl.cli.shell.Text.lower;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.LoadedLibrary;
import io.jccl.bindings.NativeLibrary;
import java.io.IOException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** Searches for native libraries and reports the outcome. */
final class LibraryProbe {
    private LibraryProbe() {}

    static List<Facts.Library> examine(Machine machine) {
        return Arrays.stream(NativeLibrary.values()).map(l -> library(machine, l)).toList();
    }

    static String name(NativeLibrary library) {
        return lower(library);
    }

    private static Facts.Library library(Machine machine, NativeLibrary library) {
        // Loading runs the library's own initialisers.
        Reading<Discovery> discovery =
                Bounded.call(
                        "loading " + library.title(),
                        machine.patience(),
                        () -> machine.libraries().discover(library));
        Reading<List<Libraries.Copy>> copies =
                Bounded.call(
                                "looking for copies of " + library.title(),
                                machine.patience(),
                                () -> machine.libraries().copies(library))
                        .flatMap(r -> r);
        return switch (discovery) {
            case Reading.Known<Discovery>(Discovery.Found(LoadedLibrary l, var attempts)) ->
                    entry(library, l, null, attempts, others(copies, List.of(l.path())));
            case Reading.Known<Discovery>(Discovery.Missing m) -> {
                List<String> tried = m.attempts().stream().map(Discovery.Attempt::path).toList();
                yield entry(library, null, m.reason(), m.attempts(), others(copies, tried));
            }
            case Reading.Unknown<Discovery>(String reason) ->
                    entry(library, null, reason, List.of(), copies);
        };
    }

    private static Reading<List<Libraries.Copy>> others(
            Reading<List<Libraries.Copy>> copies, List<String> known) {
        Set<String> paths = known.stream().map(LibraryProbe::real).collect(Collectors.toSet());
        return copies.map(all -> all.stream().filter(c -> !paths.contains(c.path())).toList());
    }

    private static String real(String path) {
        try {
            return Path.of(path).toRealPath().toString();
        } catch (IOException | InvalidPathException e) {
            return path; // such as a name that the dynamic loader was asked for
        }
    }

    private static Facts.Library entry(
            NativeLibrary library,
            @Nullable LoadedLibrary loaded,
            @Nullable String reason,
            List<Discovery.Attempt> attempts,
            Reading<List<Libraries.Copy>> copies) {
        return new Facts.Library(
                name(library),
                library.title(),
                loaded != null,
                loaded == null ? null : loaded.version().toString(),
                loaded == null ? null : loaded.path(),
                loaded == null ? null : loaded.how(),
                reason,
                attempts,
                copies);
    }
}

package io.jccl.bindings;

import io.jccl.bindings.LibraryPlaces.Place;
import io.jccl.bindings.LibraryPlaces.Setting;
import io.jccl.bindings.Machine.Kind;
import io.jccl.bindings.Machine.Opened;
import io.jccl.bindings.OpenException.State;
import java.lang.foreign.SymbolLookup;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * One search for one library.
 *
 * <p>An explicit setting is used, or the search fails: falling back to another copy would hide the
 * mistake. A library of which a process must not have two copies is searched for among the mapped
 * files before and after it is loaded.
 *
 * <p><b>Threads:</b> one.
 */
final class LibrarySearch {
    /** The outcome, and the library's symbols if it was found. */
    record Result(Discovery discovery, @Nullable SymbolLookup symbols) {}

    private static final String MAPPED = "already mapped in this process";
    private static final String LOADER = "dynamic loader";
    private static final String STANDARD = "libmpi_abi.so";

    private final NativeLibrary library;
    private final Machine machine;
    private final LibraryPlaces places;

    /** The library's file names, best first. */
    private final List<String> sonames;

    private final Set<String> seen = new HashSet<>();
    private final SearchReport report;

    private LibrarySearch(NativeLibrary library, Machine machine) {
        this.library = library;
        this.machine = machine;
        this.places = new LibraryPlaces(library, machine);
        this.sonames = places.sonames();
        this.report = new SearchReport(library, places);
    }

    static Result search(NativeLibrary library, Machine machine) {
        return new LibrarySearch(library, machine).run();
    }

    /** Every file of a library that a search could find, without loading any. */
    static List<LibraryFile> files(NativeLibrary library, Machine machine) {
        LibrarySearch search = new LibrarySearch(library, machine);
        Map<String, LibraryFile> found = new LinkedHashMap<>();
        for (Mapping copy : search.copies()) {
            found.put(copy.path(), new LibraryFile(library, copy.path(), MAPPED));
        }
        List<Place> all = new ArrayList<>();
        for (Setting setting : search.places.settings()) {
            String path = search.places.absolute(setting.value());
            if (setting.file() && machine.kind(path) == Kind.FILE) {
                String real = machine.realPath(path);
                found.putIfAbsent(real, new LibraryFile(library, real, setting.how()));
            } else {
                all.add(search.places.below(setting));
            }
        }
        all.addAll(search.places.hints());
        all.addAll(search.places.loaderPath());
        all.addAll(search.places.usual());
        for (Place place : all) {
            for (String file : search.filesIn(place.folders())) {
                String real = machine.realPath(file);
                found.putIfAbsent(real, new LibraryFile(library, real, place.how()));
            }
        }
        return List.copyOf(found.values());
    }

    private Result run() {
        String platform = platformRefusal();
        if (platform != null) {
            return report.missing("this machine", machine.property("os.name"), platform);
        }
        String refusal = machine.nativeAccessRefusal();
        if (refusal != null) {
            return report.missing("this JVM", "native access", refusal);
        }
        List<Mapping> copies = copies();
        if (oneCopy() && copies.size() > 1) {
            copies.forEach(c -> report.note(MAPPED, c.path(), "found"));
            return report.refused(report.bothMapped(copies));
        }
        for (Setting setting : places.settings()) {
            Result result = follow(setting, copies);
            if (result != null) {
                return result;
            }
        }
        for (Mapping copy : copies) {
            // A deleted file can be opened only by the name that the loader has recorded.
            String name = copy.deleted() ? sonameOf(copy) : copy.path();
            Result result = tryOpenAlone(MAPPED, name, copy.path());
            if (result != null) {
                return result;
            }
        }
        Result result = look(places.hints());
        for (String soname : sonames) {
            result = result == null ? tryOpenAlone(LOADER, soname, soname) : result;
        }
        // The loader has rejected the files in its own folders; this finds the reason.
        result = result == null ? look(places.loaderPath()) : result;
        result = result == null ? look(places.usual()) : result;
        return result == null ? report.missing(report.notFound()) : result;
    }

    private @Nullable String platformRefusal() {
        String os = machine.property("os.name");
        String bits = machine.property("sun.arch.data.model");
        if ("Linux".equals(os) && !"32".equals(bits)) {
            return null;
        }
        return SearchReport.capitalized(library.title())
                + " cannot be used here: this is "
                + os
                + " on "
                + machine.property("os.arch")
                + ", and JCCL calls native libraries on 64-bit Linux only; the host engine needs"
                + " none";
    }

    // --- Explicit settings.

    /** Null if the search goes on. */
    private @Nullable Result follow(Setting setting, List<Mapping> copies) {
        String path = places.absolute(setting.value());
        Kind kind = machine.kind(path);
        if (kind == Kind.FILE && setting.file()) {
            return load(setting, path, copies);
        }
        if (kind != Kind.FOLDER) {
            return broken(
                    setting,
                    path,
                    switch (kind) {
                        case FILE -> "is a file";
                        case CLOSED -> "this user may not read";
                        case OTHER -> "is neither a file nor a folder";
                        default -> "does not exist";
                    });
        }
        Place place = places.below(setting);
        List<String> files = filesIn(place.folders());
        if (!files.isEmpty()) {
            return load(setting, files.getFirst(), copies);
        }
        String others = others(place);
        if (setting.binding()) {
            return broken(setting, path, "holds no " + report.sonames() + others);
        }
        place.folders().forEach(this::firstLook);
        report.note(setting.how(), path, "no " + report.sonames() + " in it" + others);
        return null;
    }

    private Result load(Setting setting, String file, List<Mapping> copies) {
        if (oneCopy()) {
            for (Mapping copy : copies) {
                if (copy.deleted() || !machine.sameFile(copy.path(), file)) {
                    report.note(setting.how(), file, "refused: another copy is mapped already");
                    return report.refused(
                            ("%s: %s%s is mapped already, and %s names %s; let both be one file,"
                                            + " or remove the setting to use the mapped one")
                                    .formatted(
                                            report.twoCopies(),
                                            copy.path(),
                                            copy.deleted() ? " (deleted or replaced since)" : "",
                                            setting.how(),
                                            file));
                }
            }
        }
        Result result = tryOpen(setting.how(), file, file);
        if (result != null) {
            return result;
        }
        return report.missing(
                ("%s was not loaded: %s is '%s', %s cannot be used: %s; correct or remove the"
                                + " setting")
                        .formatted(
                                SearchReport.capitalized(library.title()),
                                setting.how(),
                                setting.value(),
                                file.equals(setting.value()) ? "which" : "but " + file,
                                report.why()));
    }

    private Result broken(Setting setting, String path, String problem) {
        report.note(setting.how(), path, problem);
        return report.missing(
                ("%s was not loaded: %s is '%s', which %s; expected %sa folder with %s in it or in"
                                + " its %s: correct or remove the setting")
                        .formatted(
                                SearchReport.capitalized(library.title()),
                                setting.how(),
                                setting.value(),
                                problem,
                                setting.file() ? "a file, or " : "",
                                report.sonames(),
                                places.subfolders()));
    }

    /** Other versions in a folder, so that the message shows a wrong version, and no files. */
    private String others(Place place) {
        Map<String, String> found = new LinkedHashMap<>();
        for (String folder : place.folders()) {
            for (String name : machine.list(folder)) {
                if (stems().stream().anyMatch(stem -> isVersionOf(stem, name))) {
                    found.putIfAbsent(name, name + unlessFile(machine.kind(folder + "/" + name)));
                }
            }
        }
        return found.isEmpty()
                ? ""
                : " (but " + String.join(", ", found.values()) + advice(found.keySet()) + ")";
    }

    private static String unlessFile(Kind kind) {
        return switch (kind) {
            case FILE -> "";
            case FOLDER -> ", a folder";
            case CLOSED -> ", which this user may not read";
            default -> ", a link to nothing or no file";
        };
    }

    private String advice(Set<String> names) {
        return names.stream().anyMatch(places.relatives()::containsKey)
                ? ": " + SearchReport.KNOWN_MPI
                : "";
    }

    // --- Places that may or may not hold the library.

    private @Nullable Result look(List<Place> list) {
        for (Place place : list) {
            // Many names lead to one folder, such as /usr/local/cuda.
            List<String> fresh = place.folders().stream().filter(this::firstLook).toList();
            if (fresh.isEmpty() && place.folders().stream().anyMatch(this::isFolder)) {
                continue;
            }
            List<String> files = filesIn(fresh);
            for (String file : files) {
                Result result = tryOpenAlone(place.how(), file, file);
                if (result != null) {
                    return result;
                }
            }
            if (files.isEmpty()) {
                report.note(place.how(), place.path(), nothingIn(place, fresh));
            }
        }
        return null;
    }

    private String nothingIn(Place place, List<String> fresh) {
        for (String folder : fresh) {
            for (Map.Entry<String, String> other : places.relatives().entrySet()) {
                String file = folder + "/" + other.getKey();
                if (machine.kind(file) == Kind.FILE) {
                    report.relative(other.getValue() + " at " + file);
                    return "no " + report.sonames() + " in it, but " + other.getValue();
                }
            }
        }
        return switch (machine.kind(place.path())) {
            case CLOSED -> "this user may not read it";
            case FILE -> "is a file";
            default -> fresh.isEmpty() ? "no such folder" : "no " + report.sonames() + " in it";
        };
    }

    private boolean firstLook(String folder) {
        return isFolder(folder) && seen.add(machine.realPath(folder));
    }

    private boolean isFolder(String path) {
        return machine.kind(path) == Kind.FOLDER;
    }

    /** The library's files in some folders: the best file name first, then the best folder. */
    private List<String> filesIn(List<String> folders) {
        List<String> found = new ArrayList<>();
        for (String soname : sonames) {
            for (String folder : folders) {
                String file = folder + "/" + soname;
                if (machine.kind(file) == Kind.FILE) {
                    found.add(file);
                }
            }
        }
        return found;
    }

    // --- Loading.

    /** Null if it could not be used and another may be tried. */
    private @Nullable Result tryOpenAlone(String how, String name, String shown) {
        Result result = tryOpen(how, name, shown);
        if (result == null && oneCopy() && !copies().isEmpty()) {
            // It cannot be unloaded, and a better one must not be loaded as well.
            return report.missing(report.notUsable());
        }
        return result;
    }

    /** Null if it could not be used; the report then has the reason, unless it does not exist. */
    private @Nullable Result tryOpen(String how, String name, String shown) {
        Opened opened;
        try {
            opened = machine.open(library, name);
        } catch (OpenException e) {
            report.note(how, shown, e.reason());
            if (e.state() != State.ABSENT || !how.equals(LOADER)) {
                report.fail(shown, e.reason());
            }
            return null;
        }
        String path = pathOf(opened, name);
        String problem = null;
        if (oneCopy()) {
            List<Mapping> copies = copies();
            if (copies.size() > 1) {
                problem = report.bothMapped(copies);
            }
        }
        if (!opened.version().atLeast(library.minimum())) {
            problem =
                    "it is version %s, older than %s, the oldest supported: %s"
                            .formatted(opened.version(), library.minimum(), report.install());
        }
        if (problem != null) {
            report.note(how, shown, problem);
            report.fail(path, problem);
            return null;
        }
        report.note(how, path, "loaded");
        LoadedLibrary loaded = new LoadedLibrary(library, opened.version(), path, how);
        return new Result(new Discovery.Found(loaded, report.attempts()), opened.symbols());
    }

    /** The file that a library's code was really loaded from. */
    private String pathOf(Opened opened, String name) {
        for (Mapping mapping : machine.mappings()) {
            if (mapping.contains(opened.address())) {
                return mapping.path();
            }
        }
        return name.startsWith("/") ? machine.realPath(name) : name;
    }

    /**
     * Whether two copies in one process are harmful. Two NCCLs corrupt each other's global state,
     * and two MPIs would both be the same rank. Two CUDA runtimes are common, since NCCL includes
     * its own.
     */
    private boolean oneCopy() {
        return library == NativeLibrary.NCCL || library == NativeLibrary.MPI;
    }

    /** The start of the library's file names in every version. */
    private List<String> stems() {
        return switch (library) {
            case NCCL -> List.of("libnccl.so");
            case CUDART -> List.of("libcudart.so");
            case CUBLAS -> List.of("libcublas.so");
            case MPI -> List.of("libmpi.so", "libmpich.so", STANDARD);
        };
    }

    /** The library's files in this process, each once, the best name first. */
    private List<Mapping> copies() {
        List<String> names = oneCopy() ? stems() : sonames;
        Map<String, Mapping> found = new LinkedHashMap<>();
        for (String start : names) {
            for (Mapping mapping : machine.mappings()) {
                if (isVersionOf(start, mapping.name())) {
                    found.putIfAbsent(mapping.file(), mapping);
                }
            }
        }
        List<Mapping> all = List.copyOf(found.values());
        // A library of the standard ABI may be a layer over another, and is the one to call.
        List<Mapping> layers = all.stream().filter(m -> isVersionOf(STANDARD, m.name())).toList();
        return layers.isEmpty() ? all : layers;
    }

    /** The standard ABI's name may be a link to one that also names the MPI, as on Debian. */
    private static boolean isVersionOf(String stem, String name) {
        return name.equals(stem)
                || name.startsWith(stem + ".")
                || (stem.equals(STANDARD) && name.startsWith("libmpi_abi_"));
    }

    private String sonameOf(Mapping copy) {
        return sonames.stream()
                .filter(copy.name()::startsWith)
                .findFirst()
                .orElse(sonames.getFirst());
    }
}

package io.jccl.bindings;

import io.jccl.bindings.Machine.Kind;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/** The places where a native library may be on a machine. */
final class LibraryPlaces {
    /**
     * An explicit setting.
     *
     * @param how the name of the setting
     * @param value its value
     * @param file whether it may name the file itself
     * @param binding whether the library must be there
     */
    record Setting(String how, String value, boolean file, boolean binding) {}

    /**
     * Folders that belong together.
     *
     * @param how where they come from
     * @param path what they have in common, for display
     * @param folders where the file may lie, best first
     */
    record Place(String how, String path, List<String> folders) {}

    /** The differences between libraries. */
    private record Traits(List<String> homes, boolean binding, List<String> hints, boolean wheels) {
        static Traits of(NativeLibrary library) {
            return switch (library) {
                // Toolkits do not include NCCL: a CUDA_HOME without it is not a mistake.
                case NCCL ->
                        new Traits(
                                List.of("NCCL_HOME"),
                                true,
                                List.of("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"),
                                true);
                case CUDART ->
                        new Traits(
                                List.of("CUDA_HOME", "CUDA_PATH"),
                                true,
                                List.of("CONDA_PREFIX"),
                                true);
                // A toolkit may be installed in parts: then the library may be elsewhere.
                case CUBLAS ->
                        new Traits(
                                List.of("CUDA_HOME", "CUDA_PATH"),
                                false,
                                List.of("CONDA_PREFIX"),
                                true);
                case MPI -> new Traits(List.of("MPI_HOME"), true, List.of("CONDA_PREFIX"), false);
            };
        }
    }

    private static final String USUAL = "usual folder";
    private static final String WHEELS = "pip wheels";

    /** Compares numbers in names as numbers: 13.10 is newer than 13.9. */
    private static final Comparator<String> NEWEST_FIRST =
            (a, b) -> {
                String x = padded(a);
                String y = padded(b);
                return x.equals(y) ? a.compareTo(b) : y.compareTo(x);
            };

    private static final List<String> SYSTEM_PREFIXES = List.of("/usr/local", "/usr");

    private final NativeLibrary library;
    private final Machine machine;
    private final Traits traits;
    private final List<String> subfolders;
    private final String multiarch;

    LibraryPlaces(NativeLibrary library, Machine machine) {
        this.library = library;
        this.machine = machine;
        this.traits = Traits.of(library);
        String arch = machine.property("os.arch");
        String cpu =
                switch (arch == null ? "" : arch) {
                    case "amd64", "x86_64" -> "x86_64";
                    case "ppc64le" -> "powerpc64le";
                    default -> String.valueOf(arch);
                };
        this.multiarch = cpu + "-linux-gnu";
        // lib64 first: where both exist, lib may hold 32-bit libraries.
        List<String> subs = new ArrayList<>(List.of("lib64", "lib"));
        if (library != NativeLibrary.MPI) {
            cudaTargets(cpu).forEach(target -> subs.add("targets/" + target + "/lib"));
        }
        subs.add("lib/" + multiarch);
        this.subfolders = List.copyOf(subs);
    }

    /** CUDA's names for a processor; on 64-bit Arm, servers and Jetsons have one each. */
    private static List<String> cudaTargets(String cpu) {
        return switch (cpu) {
            case "aarch64" -> List.of("sbsa-linux", "aarch64-linux");
            case "powerpc64le" -> List.of("ppc64le-linux");
            default -> List.of(cpu + "-linux");
        };
    }

    /** The folders in which a home is searched, for display. */
    String subfolders() {
        int last = subfolders.size() - 1;
        return String.join(", ", subfolders.subList(0, last)) + " or " + subfolders.get(last);
    }

    /** The variables that {@link #settings} reads. */
    List<String> homes() {
        return traits.homes;
    }

    /** The explicit settings, best first. An empty value counts as not set. */
    List<Setting> settings() {
        List<Setting> found = new ArrayList<>();
        String property = machine.property(library.property());
        if (property != null && !property.isBlank()) {
            found.add(new Setting("system property " + library.property(), property, true, true));
        }
        for (String name : traits.homes) {
            String value = machine.variable(name);
            if (value != null && !value.isBlank()) {
                found.add(
                        new Setting("environment variable " + name, value, false, traits.binding));
            }
        }
        return found;
    }

    /** The places of the library below a folder that was set. */
    Place below(Setting setting) {
        return home(setting.how, absolute(setting.value));
    }

    /** A setting's value as an absolute path. */
    String absolute(String value) {
        String path = value.strip();
        if (!path.startsWith("/")) {
            path = machine.property("user.dir") + "/" + path;
        }
        while (path.length() > 1 && path.endsWith("/")) {
            path = path.substring(0, path.length() - 1);
        }
        return path;
    }

    /** Environments that the process runs in, which may or may not hold the library. */
    List<Place> hints() {
        List<Place> places = new ArrayList<>();
        for (String name : traits.hints) {
            String value = machine.variable(name);
            if (value != null && !value.isBlank()) {
                places.add(home("environment variable " + name, absolute(value)));
            }
        }
        if (traits.wheels) {
            places.addAll(wheelsOfVariable("CONDA_PREFIX"));
        }
        return places;
    }

    /** The folders that the dynamic loader searches before its cache. */
    List<Place> loaderPath() {
        List<Place> places = new ArrayList<>();
        for (String folder : entries("LD_LIBRARY_PATH")) {
            places.add(folder("environment variable LD_LIBRARY_PATH", folder));
        }
        return places;
    }

    /** The usual places of installers, whether or not the dynamic loader searches them. */
    List<Place> usual() {
        List<Place> places = new ArrayList<>();
        if (library == NativeLibrary.MPI) {
            addMpi(places);
        } else {
            addToolkits(places);
        }
        for (String path :
                List.of(
                        "/usr/lib/" + multiarch,
                        "/usr/lib64",
                        "/usr/local/lib",
                        "/usr/local/lib64")) {
            places.add(usualFolder(path));
        }
        if (traits.wheels) {
            addWheels(places);
        }
        return places;
    }

    private void addToolkits(List<Place> places) {
        String current = "/usr/local/cuda";
        List<String> toolkits = new ArrayList<>(List.of(current));
        newestFirst("/usr/local", name -> name.startsWith("cuda-"))
                .forEach(name -> toolkits.add("/usr/local/" + name));
        for (String toolkit : toolkits) {
            places.add(home(USUAL, toolkit));
        }
    }

    private void addMpi(List<Place> places) {
        // The library installed with the launcher is the one that works with it.
        for (String prefix : prefixesOnPath("mpirun")) {
            places.add(home("mpirun on PATH", prefix));
        }
        String environment = machine.variable("VIRTUAL_ENV");
        if (environment != null && !environment.isBlank()) {
            places.add(home("environment variable VIRTUAL_ENV", absolute(environment)));
        }
        places.add(usualFolder("/usr/lib/" + multiarch + "/openmpi/lib"));
        places.add(usualFolder("/usr/lib64/openmpi/lib"));
        places.add(home(USUAL, "/usr/local/mpi"));
        places.add(home(USUAL, "/opt/amazon/openmpi"));
        places.add(home(USUAL, "/opt/hpcx/ompi"));
        newestFirst("/opt", name -> name.contains("mpi"))
                .forEach(name -> places.add(home(USUAL, "/opt/" + name)));
    }

    private void addWheels(List<Place> places) {
        places.addAll(wheelsOfVariable("VIRTUAL_ENV"));
        for (String entry : entries("PYTHONPATH")) {
            places.add(new Place("pip wheels of PYTHONPATH", wheelPattern(entry), wheels(entry)));
        }
        for (String prefix : prefixesOnPath("python3")) {
            if (!SYSTEM_PREFIXES.contains(prefix)) {
                places.addAll(wheels("pip wheels of python3 on PATH", prefix, List.of(prefix)));
            }
        }
        String user = machine.property("user.home");
        if (user != null && user.startsWith("/")) {
            String pyenv = user + "/.pyenv/versions";
            places.addAll(wheels(WHEELS, user + "/.local", List.of(user + "/.local")));
            places.addAll(
                    wheels(
                            WHEELS,
                            pyenv + "/*",
                            newestFirst(pyenv, name -> true).stream()
                                    .map(name -> pyenv + "/" + name)
                                    .toList()));
        }
        for (String prefix : SYSTEM_PREFIXES) {
            places.addAll(wheels(WHEELS, prefix, List.of(prefix)));
        }
        places.addAll(wheels(WHEELS, "/opt/*", children("/opt")));
    }

    private static String padded(String name) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < name.length(); ) {
            int end = i;
            while (end < name.length() && Character.isDigit(name.charAt(end))) {
                end++;
            }
            if (end > i) {
                text.repeat("0", Math.max(0, 12 - (end - i))).append(name, i, end);
                i = end;
            } else {
                text.append(name.charAt(i++));
            }
        }
        return text.toString();
    }

    private Place home(String how, String path) {
        List<String> folders = new ArrayList<>();
        String base = path.equals("/") ? "" : path;
        subfolders.forEach(sub -> folders.add(base + "/" + sub));
        folders.add(path);
        return new Place(how, path, folders);
    }

    private static Place folder(String how, String path) {
        return new Place(how, path, List.of(path));
    }

    private static Place usualFolder(String path) {
        return folder(USUAL, path);
    }

    private List<Place> wheelsOfVariable(String name) {
        String value = machine.variable(name);
        if (value == null || value.isBlank()) {
            return List.of();
        }
        String prefix = absolute(value);
        return wheels("pip wheels of " + name, prefix, List.of(prefix));
    }

    /** The wheels below some prefixes, or one empty place that reports where none were found. */
    private List<Place> wheels(String how, String shown, List<String> prefixes) {
        List<Place> places = new ArrayList<>();
        for (String prefix : prefixes) {
            for (String site : sites(prefix)) {
                List<String> folders = wheels(site);
                if (!folders.isEmpty()) {
                    places.add(new Place(how, wheelPattern(site), folders));
                }
            }
        }
        if (places.isEmpty()) {
            String site = shown + "/lib/python3*/{site,dist}-packages";
            places.add(new Place(how, wheelPattern(site), List.of()));
        }
        return places;
    }

    /** Where the Pythons below a prefix keep packages, the newest Python first. */
    private List<String> sites(String prefix) {
        List<String> sites = new ArrayList<>();
        for (String lib : List.of(prefix + "/lib", prefix + "/lib64")) {
            for (String python : newestFirst(lib, name -> name.startsWith("python3"))) {
                sites.add(lib + "/" + python + "/site-packages");
                sites.add(lib + "/" + python + "/dist-packages");
            }
        }
        return sites;
    }

    private static String wheelPattern(String site) {
        return site + "/nvidia/*/lib";
    }

    /** NVIDIA's wheels have a folder each, with the libraries in lib. */
    private List<String> wheels(String site) {
        return children(site + "/nvidia").stream()
                .map(child -> child + "/lib")
                .filter(folder -> machine.kind(folder) == Kind.FOLDER)
                .toList();
    }

    private List<String> children(String folder) {
        return machine.list(folder).stream().map(name -> folder + "/" + name).toList();
    }

    private List<String> newestFirst(String folder, Predicate<String> wanted) {
        return machine.list(folder).stream().filter(wanted).sorted(NEWEST_FIRST).toList();
    }

    private List<String> entries(String variable) {
        @Nullable String value = machine.variable(variable);
        List<String> found = new ArrayList<>();
        for (String entry : (value == null ? "" : value).split(":", -1)) {
            if (!entry.isBlank()) {
                found.add(absolute(entry));
            }
        }
        return found;
    }

    /** The prefixes of a program on the PATH, before and after resolving links. */
    private List<String> prefixesOnPath(String program) {
        Set<String> prefixes = new LinkedHashSet<>();
        for (String folder : entries("PATH")) {
            String file = folder + "/" + program;
            if (machine.kind(file) == Kind.FILE) {
                for (String path : List.of(file, machine.realPath(file))) {
                    int bin = path.lastIndexOf("/bin/");
                    if (bin >= 0 && path.indexOf('/', bin + "/bin/".length()) < 0) {
                        prefixes.add(path.substring(0, bin));
                    }
                }
            }
        }
        prefixes.remove("");
        return List.copyOf(prefixes);
    }

    /**
     * Files of libraries that serve the same purpose but cannot be used, with their descriptions.
     */
    Map<String, String> relatives() {
        if (library != NativeLibrary.MPI) {
            return Map.of();
        }
        return Map.of("libmpi_abi.so.0", "an MPI with a draft of the standard binary interface");
    }

    /**
     * The library's file names, best first. Of several MPIs, only the one that started this process
     * has its rank; with any other it would be the only rank. The name of the standard ABI belongs
     * to any of them.
     */
    List<String> sonames() {
        if (library != NativeLibrary.MPI
                || machine.variable("OMPI_COMM_WORLD_SIZE") != null
                || machine.variable("MPI_LOCALNRANKS") == null) {
            return library.sonames();
        }
        List<String> last = List.of("libmpi_abi.so.1", "libmpi.so.40");
        return library.sonames().stream().sorted(Comparator.comparing(last::indexOf)).toList();
    }
}

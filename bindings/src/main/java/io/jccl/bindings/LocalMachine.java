package io.jccl.bindings;

import io.jccl.bindings.OpenException.State;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The machine that this process runs on. */
final class LocalMachine implements Machine {
    private static final Path MAPS = Path.of("/proc/self/maps");
    private static final Path LOADER_CACHE = Path.of("/etc/ld.so.cache");

    @Override
    public @Nullable String property(String name) {
        return System.getProperty(name);
    }

    @Override
    public @Nullable String variable(String name) {
        return System.getenv(name);
    }

    @Override
    public Kind kind(String path) {
        try {
            Path file = Path.of(path);
            BasicFileAttributes attributes = Files.readAttributes(file, BasicFileAttributes.class);
            if (!attributes.isDirectory()) {
                return attributes.isRegularFile() ? Kind.FILE : Kind.OTHER;
            }
            return Files.isExecutable(file) ? Kind.FOLDER : Kind.CLOSED;
        } catch (AccessDeniedException e) {
            return Kind.CLOSED;
        } catch (IOException e) {
            return Files.isSymbolicLink(Path.of(path)) ? Kind.OTHER : Kind.NOTHING;
        } catch (InvalidPathException e) {
            return Kind.NOTHING;
        }
    }

    @Override
    public List<String> list(String folder) {
        List<String> names = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(Path.of(folder))) {
            entries.forEach(entry -> names.add(String.valueOf(entry.getFileName())));
        } catch (IOException | DirectoryIteratorException | InvalidPathException e) {
            // A folder that cannot be listed counts as empty.
        }
        Collections.sort(names);
        return names;
    }

    @Override
    public String realPath(String path) {
        try {
            return Path.of(path).toRealPath().toString();
        } catch (IOException | InvalidPathException e) {
            return path;
        }
    }

    @Override
    public boolean sameFile(String a, String b) {
        try {
            return Files.isSameFile(Path.of(a), Path.of(b));
        } catch (IOException | InvalidPathException e) {
            return false;
        }
    }

    @Override
    public List<Mapping> mappings() {
        try {
            return Mapping.parse(new String(Files.readAllBytes(MAPS), StandardCharsets.UTF_8));
        } catch (IOException e) {
            return List.of();
        }
    }

    @Override
    public @Nullable String nativeAccessRefusal() {
        Module module = LocalMachine.class.getModule();
        if (module.isNativeAccessEnabled()) {
            return null;
        }
        try {
            // Without a flag the JVM warns at the first restricted call and allows it, unless it
            // was started to deny it. Only a call shows which.
            MemorySegment.NULL.reinterpret(0);
            return null;
        } catch (IllegalCallerException e) {
            return "this JVM refuses native calls: start it with --enable-native-access="
                    + (module.isNamed() ? module.getName() : "ALL-UNNAMED");
        }
    }

    @Override
    public Opened open(NativeLibrary library, String name) throws OpenException {
        return name.startsWith("/") ? openFile(library, name) : openByLoader(library, name);
    }

    private Opened openFile(NativeLibrary library, String name) throws OpenException {
        Path file = Path.of(name);
        // The JVM warns about the stack guard of files that are not ELF.
        String problem = header(file).problem(System.getProperty("os.arch", ""));
        if (problem != null) {
            throw new OpenException(State.BROKEN, problem);
        }
        SymbolLookup symbols;
        try {
            symbols = SymbolLookup.libraryLookup(file, Arena.global());
        } catch (IllegalArgumentException e) {
            throw cannotOpen(realPath(name));
        }
        return VersionProbe.probe(library, symbols);
    }

    private Opened openByLoader(NativeLibrary library, String name) throws OpenException {
        // It takes the first file that matches.
        for (String file : inLoaderPath(name)) {
            String problem = header(Path.of(file)).shortage();
            if (problem != null) {
                throw new OpenException(State.BROKEN, file + ": " + problem);
            }
        }
        SymbolLookup symbols;
        try {
            symbols = SymbolLookup.libraryLookup(name, Arena.global());
        } catch (IllegalArgumentException e) {
            // Asking for the reason would cost more than the whole search where nothing is
            // installed.
            if (inLoaderPath(name).isEmpty() && !inLoaderCache(name)) {
                throw new OpenException(State.ABSENT, "not in its cache, nor in LD_LIBRARY_PATH");
            }
            throw cannotOpen(name);
        }
        return VersionProbe.probe(library, symbols);
    }

    /** The JVM does not report why it cannot open a library. */
    private static OpenException cannotOpen(String name) {
        String reason = DynamicLoader.whyNot(name);
        String prefix = name + ": ";
        return new OpenException(
                State.BROKEN,
                reason.startsWith(prefix) ? reason.substring(prefix.length()) : reason);
    }

    private List<String> inLoaderPath(String name) {
        List<String> files = new ArrayList<>();
        String folders = variable("LD_LIBRARY_PATH");
        for (String folder : (folders == null ? "" : folders).split("[:;]", -1)) {
            String file = folder + "/" + name;
            if (!folder.isEmpty() && kind(file) == Kind.FILE && Files.isReadable(Path.of(file))) {
                files.add(file);
            }
        }
        return files;
    }

    private static boolean inLoaderCache(String name) {
        try {
            // Names are stored as they are, followed by a zero byte.
            return Files.readString(LOADER_CACHE, StandardCharsets.ISO_8859_1)
                    .contains(name + '\0');
        } catch (IOException e) {
            return false;
        }
    }

    private record Header(byte[] head, long size) {
        @Nullable String problem(String arch) {
            return ElfHeader.problem(head, size, arch);
        }

        @Nullable String shortage() {
            return ElfHeader.shortage(head, size);
        }
    }

    private static Header header(Path file) throws OpenException {
        try (InputStream in = Files.newInputStream(file)) {
            return new Header(in.readNBytes(ElfHeader.BYTES), Files.size(file));
        } catch (IOException e) {
            throw new OpenException(State.BROKEN, "it cannot be read: " + e);
        }
    }
}

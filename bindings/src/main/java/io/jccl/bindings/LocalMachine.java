package io.jccl.bindings;

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
                return attributes.isRegularFile() ? Kind.FILE : Kind.NOTHING;
            }
            return Files.isExecutable(file) ? Kind.FOLDER : Kind.CLOSED;
        } catch (AccessDeniedException e) {
            return Kind.CLOSED;
        } catch (IOException | InvalidPathException e) {
            return Kind.NOTHING;
        }
    }

    @Override
    public List<String> list(String folder) {
        List<String> names = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(Path.of(folder))) {
            entries.forEach(entry -> names.add(String.valueOf(entry.getFileName())));
        } catch (IOException | DirectoryIteratorException | InvalidPathException e) {
            // What cannot be listed has nothing to offer.
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
            // Without a flag the JVM warns at the first restricted call and lets it pass, unless it
            // was told to deny. Which of the two only a call can tell.
            MemorySegment.NULL.reinterpret(0);
            return null;
        } catch (IllegalCallerException e) {
            return "this JVM refuses native calls: start it with --enable-native-access="
                    + (module.isNamed() ? module.getName() : "ALL-UNNAMED");
        }
    }

    @Override
    public Opened open(NativeLibrary library, String name) throws OpenException {
        boolean path = name.startsWith("/");
        if (path) {
            checkFormat(Path.of(name));
        }
        SymbolLookup symbols;
        try {
            symbols =
                    path
                            ? SymbolLookup.libraryLookup(Path.of(name), Arena.global())
                            : SymbolLookup.libraryLookup(name, Arena.global());
        } catch (IllegalArgumentException e) {
            // The JVM does not say why.
            String reason = DynamicLoader.whyNot(path ? realPath(name) : name);
            if (!path && isAbsent(name, reason)) {
                throw new OpenException(
                        OpenException.State.ABSENT, "not in its cache, nor in LD_LIBRARY_PATH");
            }
            throw new OpenException(OpenException.State.BROKEN, reason);
        }
        return VersionProbe.probe(library, symbols);
    }

    /** The same message may name a library that this one needs: then this one is there. */
    private static boolean isAbsent(String name, String reason) {
        return reason.startsWith(name + ": cannot open shared object file: No such file")
                // musl
                || reason.startsWith("Error loading shared library " + name + ":");
    }

    /**
     * Reads the first bytes, which tell what the dynamic loader would not say so clearly. HotSpot
     * also warns about the stack guard of anything that is no ELF file.
     */
    private static void checkFormat(Path file) throws OpenException {
        byte[] head;
        try (InputStream in = Files.newInputStream(file)) {
            head = in.readNBytes(20);
        } catch (IOException e) {
            throw new OpenException(OpenException.State.BROKEN, "it cannot be read: " + e);
        }
        String problem = ElfHeader.problem(head, System.getProperty("os.arch", ""));
        if (problem != null) {
            throw new OpenException(OpenException.State.BROKEN, problem);
        }
    }
}

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
            // The JVM does not say why, and to ask costs more than the whole search where nothing
            // is installed: so only if there is something to ask about.
            if (!path && !isKnown(name)) {
                throw new OpenException(
                        OpenException.State.ABSENT, "not in its cache, nor in LD_LIBRARY_PATH");
            }
            String asked = path ? realPath(name) : name;
            String reason = DynamicLoader.whyNot(asked);
            String prefix = asked + ": ";
            throw new OpenException(
                    OpenException.State.BROKEN,
                    reason.startsWith(prefix) ? reason.substring(prefix.length()) : reason);
        }
        return VersionProbe.probe(library, symbols);
    }

    /** Whether the dynamic loader has a file of that name, though it did not load it. */
    private boolean isKnown(String name) {
        String folders = variable("LD_LIBRARY_PATH");
        for (String folder : (folders == null ? "" : folders).split("[:;]", -1)) {
            if (!folder.isEmpty() && kind(folder + "/" + name) == Kind.FILE) {
                return true;
            }
        }
        try {
            // Names stand in it as they are, each between two zero bytes or after a slash.
            return Files.readString(LOADER_CACHE, StandardCharsets.ISO_8859_1)
                    .contains(name + '\0');
        } catch (IOException e) {
            return false;
        }
    }

    /**
     * Reads the first bytes, which tell what the dynamic loader would not say so clearly. HotSpot
     * also warns about the stack guard of anything that is no ELF file.
     */
    private static void checkFormat(Path file) throws OpenException {
        byte[] head;
        long size;
        try (InputStream in = Files.newInputStream(file)) {
            head = in.readNBytes(ElfHeader.BYTES);
            size = Files.size(file);
        } catch (IOException e) {
            throw new OpenException(OpenException.State.BROKEN, "it cannot be read: " + e);
        }
        String problem = ElfHeader.problem(head, size, System.getProperty("os.arch", ""));
        if (problem != null) {
            throw new OpenException(OpenException.State.BROKEN, problem);
        }
    }
}

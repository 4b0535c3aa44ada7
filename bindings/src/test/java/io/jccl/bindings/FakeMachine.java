package io.jccl.bindings;

import io.jccl.bindings.OpenException.State;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/** A machine that exists on paper. Folders are there because files are. */
final class FakeMachine implements Machine {
    /** A library file: its version, or why the dynamic loader would not have it. */
    private record Content(@Nullable Version version, String problem, State state) {}

    private static final long SIZE = 0x1000;

    private final Map<String, String> properties = new HashMap<>();
    private final Map<String, String> variables = new HashMap<>();
    private final Map<String, Content> files = new HashMap<>();
    private final Map<String, String> links = new HashMap<>();
    private final Map<String, String> loaderFinds = new HashMap<>();
    private final Set<String> closed = new HashSet<>();
    private final Map<String, Mapping> mapped = new LinkedHashMap<>();
    private @Nullable String nativeAccessRefusal;

    /** What the search asked the loader for, in order. */
    final List<String> opened = new ArrayList<>();

    FakeMachine() {
        property("os.name", "Linux");
        property("os.arch", "amd64");
        property("sun.arch.data.model", "64");
        property("user.dir", "/work");
        property("user.home", "/home/me");
    }

    FakeMachine property(String name, String value) {
        properties.put(name, value);
        return this;
    }

    FakeMachine variable(String name, String value) {
        variables.put(name, value);
        return this;
    }

    /** A library that loads. */
    FakeMachine library(String path, String version) {
        files.put(path, new Content(Version.of(version), "", State.LOADED));
        return this;
    }

    /** A file that does not load. */
    FakeMachine broken(String path, String problem) {
        files.put(path, new Content(null, problem, State.BROKEN));
        return this;
    }

    /** A library that loads, and then turns out to be another. */
    FakeMachine stranger(String path, String problem) {
        files.put(path, new Content(null, problem, State.LOADED));
        return this;
    }

    /** A file or folder. */
    FakeMachine link(String path, String target) {
        links.put(path, target);
        return this;
    }

    FakeMachine closed(String path) {
        closed.add(path);
        return this;
    }

    /** A file in the dynamic loader's cache or path. */
    FakeMachine loaderFinds(String soname, String path) {
        loaderFinds.put(soname, path);
        return this;
    }

    FakeMachine refuseNativeAccess(String reason) {
        nativeAccessRefusal = reason;
        return this;
    }

    /** Somebody else loads a file. */
    FakeMachine map(String path) {
        map(realPath(path), false);
        return this;
    }

    /** Somebody else has loaded a file, which was then deleted; the loader knows its soname. */
    FakeMachine mapDeleted(String path, String soname, String version) {
        library("(deleted) " + path, version);
        mapped.put("(deleted) " + path, mapping("(deleted) " + path, path, true));
        return loaderFinds(soname, "(deleted) " + path);
    }

    private Mapping map(String real, boolean deleted) {
        return mapped.computeIfAbsent(real, path -> mapping(path, path, deleted));
    }

    private Mapping mapping(String key, String path, boolean deleted) {
        long start = (mapped.size() + 1) * 0x10000L;
        return new Mapping(start, start + SIZE, "08:01 " + key, path, deleted);
    }

    @Override
    public @Nullable String property(String name) {
        return properties.get(name);
    }

    @Override
    public @Nullable String variable(String name) {
        return variables.get(name);
    }

    @Override
    public Kind kind(String path) {
        String real = realPath(path);
        if (closed.stream().anyMatch(c -> real.equals(c) || real.startsWith(c + "/"))) {
            return Kind.CLOSED;
        }
        if (files.containsKey(real)) {
            return Kind.FILE;
        }
        return list(path).isEmpty() ? Kind.NOTHING : Kind.FOLDER;
    }

    @Override
    public List<String> list(String folder) {
        String start = realPath(folder) + "/";
        Set<String> names = new TreeSet<>();
        for (Set<String> paths : List.of(files.keySet(), links.keySet())) {
            for (String path : paths) {
                if (path.startsWith(start)) {
                    names.add(path.substring(start.length()).split("/", 2)[0]);
                }
            }
        }
        return List.copyOf(names);
    }

    @Override
    public String realPath(String path) {
        String real = "";
        for (String part : path.substring(1).split("/", -1)) {
            if (part.equals("..")) {
                real = real.substring(0, Math.max(0, real.lastIndexOf('/')));
                continue;
            }
            real += "/" + part;
            String target = links.get(real);
            if (target != null) {
                real = realPath(target);
            }
        }
        return real;
    }

    @Override
    public boolean sameFile(String a, String b) {
        return realPath(a).equals(realPath(b));
    }

    @Override
    public List<Mapping> mappings() {
        return List.copyOf(mapped.values());
    }

    @Override
    public @Nullable String nativeAccessRefusal() {
        return nativeAccessRefusal;
    }

    @Override
    public Opened open(NativeLibrary library, String name) throws OpenException {
        opened.add(name);
        String real = name.startsWith("/") ? realPath(name) : loaderFinds.get(name);
        Content content = real == null ? null : files.get(real);
        if (real == null || content == null) {
            throw new OpenException(State.ABSENT, "unknown to the loader");
        }
        if (content.state == State.BROKEN) {
            throw new OpenException(State.BROKEN, content.problem);
        }
        Mapping mapping = map(real, false);
        if (content.version == null) {
            throw new OpenException(State.LOADED, content.problem);
        }
        return new Opened(symbol -> Optional.empty(), mapping.start() + 0x10, content.version);
    }
}

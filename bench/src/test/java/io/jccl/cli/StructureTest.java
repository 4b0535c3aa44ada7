package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.classfile.AttributedElement;
import java.lang.classfile.Attributes;
import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassModel;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeModel;
import java.lang.classfile.MethodModel;
import java.lang.classfile.constantpool.PoolEntry;
import java.lang.classfile.constantpool.Utf8Entry;
import java.lang.classfile.instruction.ConstantInstruction;
import java.lang.classfile.instruction.InvokeInstruction;
import java.lang.module.ModuleDescriptor;
import java.lang.module.ModuleReader;
import java.lang.module.ModuleReference;
import java.lang.module.ResolvedModule;
import java.lang.reflect.AccessFlag;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NavigableSet;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.spi.ToolProvider;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The order of packages and modules, read from the compiled classes, and the length of files. */
class StructureTest {
    private static final String OURS = "io.jccl";

    /** Which of our modules each may depend on. */
    private static final Map<String, Set<String>> MODULES =
            Map.of(
                    "io.jccl.bindings", Set.of(),
                    "io.jccl.topology", Set.of(),
                    "io.jccl.collectives", Set.of("io.jccl.bindings", "io.jccl.topology"),
                    "io.jccl.offload",
                            Set.of("io.jccl.bindings", "io.jccl.topology", "io.jccl.collectives"),
                    "io.jccl.parallel",
                            Set.of("io.jccl.bindings", "io.jccl.topology", "io.jccl.collectives"),
                    "io.jccl.bench",
                            Set.of(
                                    "io.jccl.bindings",
                                    "io.jccl.topology",
                                    "io.jccl.collectives",
                                    "io.jccl.offload",
                                    "io.jccl.parallel"));

    /** What programs import. */
    private static final Set<String> PUBLIC =
            Set.of(
                    "io.jccl",
                    "io.jccl.bindings",
                    "io.jccl.compute",
                    "io.jccl.device",
                    "io.jccl.error",
                    "io.jccl.gemm",
                    "io.jccl.offload",
                    "io.jccl.offload.memplan",
                    "io.jccl.offload.nvme",
                    "io.jccl.offload.optim",
                    "io.jccl.offload.timeplan",
                    "io.jccl.offload.weights",
                    "io.jccl.offload.zero",
                    "io.jccl.parallel",
                    "io.jccl.rendezvous",
                    "io.jccl.topology",
                    "io.jccl.topology.cost",
                    "io.jccl.topology.draw",
                    "io.jccl.topology.nccl",
                    "io.jccl.topology.plan",
                    "io.jccl.topology.read",
                    "io.jccl.topology.simulate");

    private static final List<String> MODULE_FOLDERS =
            List.of(
                    "bindings",
                    "topology",
                    "collectives",
                    "collectives/parallel",
                    "collectives/spark",
                    "offload",
                    "bench",
                    "bench/jmh");

    /** A package in the picture: whole, only the end of its name, or with all below it. */
    private static final Pattern DRAWN =
            Pattern.compile("(?<![\\w.])(io\\.jccl(\\.\\w+)*|\\.\\w+)(\\.\\*)?");

    private static final int MOST_LINES = 500;

    private static final Pattern TYPE = Pattern.compile("io/jccl/[A-Za-z0-9_/$]+");

    /** A number that Formatter writes as its language does, such as with a comma. */
    private static final Pattern NUMBER = Pattern.compile("%[-,+0 #(]*[0-9.]*[dfgeE]");

    private static final Set<String> FORMATTERS = Set.of("format", "formatted", "printf");

    /** Formats with numbers in the system's language, by the method. */
    private static final NavigableMap<String, String> IN_A_LANGUAGE = new TreeMap<>();

    /** A vector or mask of the Vector API in a descriptor. */
    private static final Pattern VECTOR =
            Pattern.compile("Ljdk/incubator/vector/(\\w*Vector|VectorMask);");

    /** Methods that take or return vectors, or call one of the JDK's that C2 may not inline. */
    private static final NavigableSet<String> PASS_VECTORS = new TreeSet<>();

    /** Methods that calculate with vectors. */
    private static final NavigableSet<String> CALCULATE = new TreeSet<>();

    private static final Map<String, ModuleReference> REFERENCES = new HashMap<>();

    /** Packages that the classes of a module name, by their own package. */
    private static final NavigableMap<String, NavigableSet<String>> PACKAGES = new TreeMap<>();

    /** The module of each package. */
    private static final Map<String, String> OWNER = new HashMap<>();

    /** Packages of other modules that the classes of a module name. */
    private static final Map<String, NavigableSet<String>> USED = new HashMap<>();

    /** Types, by the member of a public class in a public package whose signature names them. */
    private static final NavigableMap<String, NavigableSet<String>> SHOWN = new TreeMap<>();

    /** Public types of public packages. */
    private static final NavigableSet<String> PUBLIC_TYPES = new TreeSet<>();

    @BeforeAll
    static void read() throws IOException {
        for (ResolvedModule m : ModuleLayer.boot().configuration().modules()) {
            if (MODULES.containsKey(m.name())) {
                REFERENCES.put(m.name(), m.reference());
                m.reference().descriptor().packages().forEach(p -> OWNER.put(p, m.name()));
            }
        }
        assertEquals(MODULES.keySet(), REFERENCES.keySet());
        for (Map.Entry<String, ModuleReference> m : REFERENCES.entrySet()) {
            try (ModuleReader reader = m.getValue().open()) {
                List<String> classes =
                        reader.list().filter(n -> n.endsWith(".class") && n.contains("/")).toList();
                for (String name : classes) {
                    try (InputStream in = reader.open(name).orElseThrow()) {
                        note(m.getKey(), name, in.readAllBytes());
                    }
                }
            }
        }
        assertTrue(PACKAGES.size() > 30, PACKAGES::toString);
    }

    private static void note(String module, String file, byte[] bytes) {
        String own = file.substring(0, file.lastIndexOf('/')).replace('/', '.');
        // Tests are patched into the module that they test; they may look at everything.
        if (!file.startsWith("io/jccl/") || isTest(file)) {
            return;
        }
        NavigableSet<String> named = PACKAGES.computeIfAbsent(own, p -> new TreeSet<>());
        ClassModel type = ClassFile.of().parse(bytes);
        if (PUBLIC.contains(own) && type.flags().has(AccessFlag.PUBLIC)) {
            noteApi(type);
        }
        noteFormats(type);
        noteVectors(type);
        for (PoolEntry e : type.constantPool()) {
            // Class names, descriptors and generic signatures alike.
            if (e instanceof Utf8Entry text) {
                Matcher m = TYPE.matcher(text.stringValue());
                while (m.find()) {
                    int end = m.group().lastIndexOf('/');
                    String p = m.group().substring(0, end).replace('/', '.');
                    String owner = OWNER.get(p);
                    if (owner != null && !p.equals(own)) {
                        named.add(p);
                        if (!owner.equals(module)) {
                            USED.computeIfAbsent(module, u -> new TreeSet<>()).add(p);
                        }
                    }
                }
            }
        }
    }

    private static void noteFormats(ClassModel type) {
        for (MethodModel m : type.methods()) {
            String format = "";
            for (CodeElement e : m.code().map(CodeModel::elementList).orElse(List.of())) {
                if (e instanceof ConstantInstruction c
                        && c.constantValue() instanceof String s
                        && s.contains("%")) {
                    format = s;
                } else if (e instanceof InvokeInstruction i
                        && FORMATTERS.contains(i.name().stringValue())) {
                    boolean theirs = i.owner().asInternalName().startsWith("java/");
                    boolean inNone = i.type().stringValue().contains("Locale");
                    if (theirs && !inNone && NUMBER.matcher(format).find()) {
                        String name = m.methodName().stringValue();
                        IN_A_LANGUAGE.put(type.thisClass().asInternalName() + "." + name, format);
                    }
                    format = "";
                }
            }
        }
    }

    private static void noteVectors(ClassModel type) {
        for (MethodModel m : type.methods()) {
            String name = type.thisClass().asInternalName() + "." + m.methodName().stringValue();
            if (VECTOR.matcher(m.methodType().stringValue()).find()) {
                PASS_VECTORS.add(name);
            }
            for (CodeElement e : m.code().map(CodeModel::elementList).orElse(List.of())) {
                if (e instanceof InvokeInstruction i
                        && VECTOR.matcher(i.type().stringValue()).find()) {
                    CALCULATE.add(name);
                    if (i.name().stringValue().startsWith("reinterpretAs")) {
                        PASS_VECTORS.add(name + " calls " + i.name());
                    }
                }
            }
        }
    }

    private static void noteApi(ClassModel type) {
        String name = type.thisClass().asInternalName();
        PUBLIC_TYPES.add(name);
        type.methods()
                .forEach(m ->
                        noteMember(
                                name + "." + m.methodName().stringValue(),
                                m.flags().flags(),
                                m.methodType().stringValue(),
                                m));
        type.fields()
                .forEach(f ->
                        noteMember(
                                name + "." + f.fieldName().stringValue(),
                                f.flags().flags(),
                                f.fieldType().stringValue(),
                                f));
    }

    private static void noteMember(
            String name, Set<AccessFlag> flags, String descriptor, AttributedElement member) {
        boolean seen = flags.contains(AccessFlag.PUBLIC) || flags.contains(AccessFlag.PROTECTED);
        if (!seen || flags.contains(AccessFlag.SYNTHETIC)) {
            return;
        }
        String signature =
                member.findAttribute(Attributes.signature())
                        .map(s -> s.signature().stringValue())
                        .orElse("");
        TYPE.matcher(descriptor + signature)
                .results()
                .forEach(r -> SHOWN.computeIfAbsent(r.group(), t -> new TreeSet<>()).add(name));
    }

    private static boolean isTest(String file) {
        return Path.of("target/test-classes").resolve(file).toFile().exists();
    }

    @Test
    void packagesFormNoCycle() {
        // Packages that nothing else left depends on are taken away until only cycles are left.
        NavigableMap<String, NavigableSet<String>> left = new TreeMap<>();
        PACKAGES.forEach((p, to) -> left.put(p, new TreeSet<>(to)));
        Deque<String> free = new ArrayDeque<>();
        do {
            free.clear();
            left.forEach((p, to) -> {
                if (to.isEmpty()) {
                    free.add(p);
                }
            });
            free.forEach(left::remove);
            left.values().forEach(to -> to.removeAll(free));
        } while (!free.isEmpty());
        assertTrue(left.isEmpty(), () -> "cycles, and what depends on them: " + left);
    }

    /** In the picture of docs/structure.md no package is missing, or above one that uses it. */
    @Test
    void thePictureHasNoPackageAboveItsUsers() throws IOException {
        String page = Files.readString(Pages.ROOT.resolve("docs/structure.md"));
        List<String> lines = page.split("```", 3)[1].lines().toList();
        Map<String, Integer> rows = new HashMap<>();
        for (int row = 0; row < lines.size(); row++) {
            String parent = "";
            Matcher m = DRAWN.matcher(lines.get(row));
            while (m.find()) {
                String name = m.group();
                boolean whole = name.startsWith(OURS);
                rows.put(whole ? name : parent + name, row);
                // Of others in the row, such as .nccl after io.jccl.engine.host.
                parent = whole ? name.substring(0, name.lastIndexOf('.')) : parent;
            }
        }
        List<String> wrong = new ArrayList<>();
        PACKAGES.forEach((name, uses) -> {
            int own = row(rows, name);
            if (own < 0) {
                wrong.add(name + " is not in it");
            }
            uses.stream()
                    .filter(used -> row(rows, used) < own)
                    .forEach(used -> wrong.add(name + " uses " + used + ", which is above it"));
        });
        assertEquals(List.of(), wrong, "the picture in docs/structure.md");
    }

    /**
     * The row of a package, by its name or that of the nearest one whose packages are all there.
     */
    private static int row(Map<String, Integer> rows, String name) {
        Integer row = rows.get(name);
        for (String p = name; row == null && p.contains("."); ) {
            row = rows.get(p + ".*");
            p = p.substring(0, p.lastIndexOf('.'));
        }
        return row == null ? -1 : row;
    }

    @Test
    void modulesDependOnWhatTheTableAllows() {
        REFERENCES.forEach((name, reference) -> {
            Set<String> allowed = MODULES.getOrDefault(name, Set.of());
            List<String> others =
                    reference.descriptor().requires().stream()
                            .map(ModuleDescriptor.Requires::name)
                            .filter(r -> r.startsWith(OURS) && !allowed.contains(r))
                            .toList();
            assertEquals(List.of(), others, name + " may not require these: see docs/structure.md");
        });
    }

    @Test
    void whatIsExportedHasAUser() {
        List<String> wrong = new ArrayList<>();
        REFERENCES.forEach((name, reference) ->
                reference
                        .descriptor()
                        .exports()
                        .forEach(e -> {
                            if (e.targets().isEmpty()) {
                                if (!PUBLIC.contains(e.source())) {
                                    wrong.add(e.source() + " is exported to all");
                                }
                                return;
                            }
                            for (String to : e.targets()) {
                                // Spark's tests and modules compiled later are not in this layer.
                                if (!MODULES.containsKey(to)
                                        || !USED.getOrDefault(to, new TreeSet<>())
                                                .contains(e.source())) {
                                    wrong.add(
                                            e.source()
                                                    + " is exported to "
                                                    + to
                                                    + ", which ignores it");
                                }
                            }
                        }));
        assertEquals(
                List.of(), wrong, "correct module-info, or list a package for programs in PUBLIC");
    }

    /** What javac's lint [exports] would say, which is off because of jspecify's annotations. */
    @Test
    void whatProgramsSeeIsExported() {
        assertTrue(SHOWN.size() > 100, SHOWN::toString);
        List<String> wrong = new ArrayList<>();
        SHOWN.forEach((type, members) -> {
            for (String member : members) {
                if (!isVisible(type) && isVisible(member.substring(0, member.indexOf('.')))) {
                    wrong.add(member + " shows " + type + ", which programs cannot import");
                }
            }
        });
        assertEquals(List.of(), wrong);
    }

    private static boolean isVisible(String type) {
        int nested = type.lastIndexOf('$');
        return PUBLIC_TYPES.contains(type) && (nested < 0 || isVisible(type.substring(0, nested)));
    }

    @Test
    void onlyBindingsCallsRestrictedMethods() {
        List<String> path =
                REFERENCES.values().stream()
                        .map(r -> Path.of(r.location().orElseThrow()).toString())
                        .toList();
        StringWriter out = new StringWriter();
        int status =
                ToolProvider.findFirst("jnativescan")
                        .orElseThrow()
                        .run(
                                new PrintWriter(out),
                                new PrintWriter(out),
                                "--module-path",
                                String.join(java.io.File.pathSeparator, path)
                                        + java.io.File.pathSeparator
                                        + System.getProperty("jdk.module.path"),
                                "--add-modules",
                                String.join(",", MODULES.keySet()),
                                "--print-native-access");
        String[] native_ = out.toString().strip().split(",");
        assertEquals(0, status, out::toString);
        List<String> ours =
                List.of(native_).stream()
                        .map(String::strip)
                        .filter(m -> m.startsWith(OURS))
                        .toList();
        assertEquals(List.of("io.jccl.bindings"), ours, out::toString);
    }

    /** So that a comma or other digits appear nowhere, whatever the system's language is. */
    @Test
    void numbersAreWrittenInNoLanguage() {
        assertEquals(Map.of(), IN_A_LANGUAGE, "use %s, or String.format(Locale.ROOT, ...)");
    }

    /**
     * C2 does not always inline such a method, and where it does not, each call allocates; so do
     * reinterpretAsInts and the like on JDK 27.
     */
    @Test
    void noMethodTakesOrReturnsAVector() {
        assertTrue(CALCULATE.size() > 20, CALCULATE::toString);
        assertEquals(Set.of(), PASS_VECTORS, "write them out, with reinterpretShape");
    }

    /** Generated code is not counted. A table of calls has a method for each function it calls. */
    @Test
    void onlyTablesOfCallsAreLong() throws IOException {
        NavigableSet<String> large = new TreeSet<>();
        int read = 0;
        for (String module : MODULE_FOLDERS) {
            try (Stream<Path> files = Files.walk(Path.of("..", module, "src/main"))) {
                for (Path file : files.filter(f -> f.toString().endsWith(".java")).toList()) {
                    read++;
                    try (Stream<String> lines = Files.lines(file)) {
                        if (lines.count() > MOST_LINES) {
                            large.add(String.valueOf(file.getFileName()));
                        }
                    }
                }
            }
        }
        assertTrue(read > 500, read + " files");
        assertEquals(
                new TreeSet<>(Set.of("Communicator.java", "MpiApi.java", "ZeroOptimizer.java")),
                large,
                "files of more than " + MOST_LINES + " lines; only tables of calls may be");
    }
}

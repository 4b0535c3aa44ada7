package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Discovery on the real machine. Each test has a JVM of its own, with the settings it needs and no
 * others; most of those that look at one kind of file alone are exhaustive.
 */
@Execution(ExecutionMode.CONCURRENT)
class NativeLibrariesTest {
    @TempDir Path temp = Path.of("");

    /** With libraries made for the purpose. */
    @Nested
    class Made {
        private static final String CUBLAS =
                """
                int cublasGetProperty(int which, int *v) {
                    *v = 13 - 6 * which;
                    return which < 0 || which > 2;
                }
                """;

        private Path nccl = Path.of("");

        @BeforeEach
        void compile() throws IOException {
            CLibrary.need();
            temp = temp.toRealPath();
            nccl = CLibrary.nccl(temp.resolve("my home/lib/libnccl.so.2"), 23007);
        }

        @Tag("exhaustive")
        @Test
        void byProperty() {
            assertFound(
                    new ChildJvm().property("jccl.nccl", nccl).run("discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (system property jccl.nccl)");
        }

        @Tag("exhaustive")
        @Test
        void byHome() {
            assertFound(
                    new ChildJvm()
                            .variable("NCCL_HOME", temp.resolve("my home"))
                            .run("discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (environment variable NCCL_HOME)");
        }

        @Tag("exhaustive")
        @Test
        void byLoaderWithTheRealPath() throws IOException {
            Path real = nccl.resolveSibling("libnccl.so.2.30.7");
            Files.move(nccl, real);
            Files.createSymbolicLink(nccl, real.getFileName());
            assertFound(
                    new ChildJvm()
                            .variable("LD_LIBRARY_PATH", temp.resolve("my home/lib"))
                            .run("discover=NCCL"),
                    "NCCL 2.30.7 from " + real + " (dynamic loader)");
        }

        @Tag("exhaustive")
        @Test
        void onTheClassPath() {
            assertFound(
                    new ChildJvm().classPath().property("jccl.nccl", nccl).run("discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (system property jccl.nccl)");
        }

        @Tag("exhaustive")
        @Test
        void byWheel() {
            Path site = temp.resolve("venv/lib/python3.12/site-packages");
            Path wheel = CLibrary.nccl(site.resolve("nvidia/nccl/lib/libnccl.so.2"), 23004);
            String output =
                    new ChildJvm()
                            .variable("CONDA_PREFIX", temp.resolve("venv"))
                            .run("discover=NCCL");
            assertFound(output, "NCCL 2.30.4 from " + wheel + " (pip wheels of CONDA_PREFIX)");
        }

        @Tag("exhaustive")
        @Test
        void otherCopiesAreListed() {
            Path other = CLibrary.nccl(temp.resolve("other/lib/libnccl.so.2"), 22803);
            String output =
                    new ChildJvm()
                            .property("jccl.nccl", nccl)
                            .variable("CONDA_PREFIX", temp.resolve("other"))
                            .run("files=NCCL", "discover=NCCL", "files=NCCL");
            assertEquals(
                    2,
                    output.split(other + " \\(environment variable CONDA_PREFIX\\)", -1).length - 1,
                    output);
            assertTrue(output.startsWith(nccl + " (system property jccl.nccl)\n" + other), output);
            assertTrue(
                    output.contains("\n" + nccl + " (already mapped in this process)\n" + other),
                    output);
        }

        @Tag("exhaustive")
        @Test
        void oneOutcomeForAllThreads() {
            String output =
                    new ChildJvm()
                            .property("jccl.nccl", nccl)
                            .run("threads=NCCL", "threads=NCCL", "discover=NCCL");
            assertTrue(output.startsWith("OUTCOMES 1\nOUTCOMES 1\nFOUND "), output);
        }

        // --- What is of no use.

        /** Each library has an outcome of its own, so that one JVM meets many kinds. */
        @Test
        void eachKindThatIsOfNoUse() throws IOException {
            Path old = CLibrary.nccl(temp.resolve("old/libnccl.so.2"), 2408);
            Path text = Files.writeString(temp.resolve("libcudart.so.13"), "INPUT ( -lc )\n# text");
            Path other = CLibrary.compile(temp.resolve("other/libcublas.so.13"), "int other;");
            Path unknown = CLibrary.mpi(temp.resolve("mpi/libmpi.so.12"), "Some MPI 4.2.1");
            assertMissing(
                    using(old, text, other, unknown),
                    "it is version 2.4.8, older than 2.7",
                    "does not start with an ELF header",
                    "it has no function cublasGetProperty, so it is not cuBLAS",
                    "it reports itself as 'Some MPI 4.2.1', whose binary interface is unknown"
                            + " to JCCL");
            Path bad =
                    CLibrary.compile(
                            temp.resolve("bad/libnccl.so.2"),
                            "int ncclGetVersion(int *v) { return 3; }");
            Path part = temp.resolve("part/libcudart.so.13");
            Files.createDirectories(part.getParent());
            Files.write(part, Arrays.copyOf(Files.readAllBytes(nccl), 4096));
            Path gone = CLibrary.compile(temp.resolve("dep/libjcclgone.so.7"), "int gone = 1;");
            Path needy =
                    CLibrary.compile(
                            temp.resolve("needy/libcublas.so.13"),
                            "int needy;",
                            "-Wl,--no-as-needed",
                            gone.toString());
            Files.delete(gone);
            Path loop = temp.resolve("loop");
            Files.createSymbolicLink(loop, loop);
            assertMissing(
                    using(bad, part, needy, loop),
                    "ncclGetVersion returned 3",
                    "it is truncated: it has 4096 bytes of",
                    "libjcclgone.so.7: cannot open shared object file",
                    "system property jccl.mpi: " + loop + ": is neither a file nor a folder");
        }

        private static String using(Path nccl, Path cudart, Path cublas, Path mpi) {
            return new ChildJvm()
                    .property(NativeLibrary.NCCL.property(), nccl)
                    .property(NativeLibrary.CUDART.property(), cudart)
                    .property(NativeLibrary.CUBLAS.property(), cublas)
                    .property(NativeLibrary.MPI.property(), mpi)
                    .run("discover=NCCL", "discover=CUDART", "discover=CUBLAS", "discover=MPI");
        }

        @Tag("exhaustive")
        @Test
        void tooOld() {
            Path old = CLibrary.nccl(temp.resolve("old/libnccl.so.2"), 2408);
            assertMissing(
                    new ChildJvm().property("jccl.nccl", old).run("discover=NCCL"),
                    "'" + old + "', which cannot be used: it is version 2.4.8, older than 2.7");
        }

        @Tag("exhaustive")
        @Test
        void anotherLibrary() {
            Path other = CLibrary.compile(temp.resolve("other/libnccl.so.2"), "int other;");
            assertMissing(
                    new ChildJvm().property("jccl.nccl", other).run("discover=NCCL"),
                    "it has no function ncclGetVersion, so it is not NCCL");
        }

        @Tag("exhaustive")
        @Test
        void aVersionThatCannotBeHad() {
            Path bad =
                    CLibrary.compile(
                            temp.resolve("bad/libnccl.so.2"),
                            "int ncclGetVersion(int *v) { return 3; }");
            assertMissing(
                    new ChildJvm().property("jccl.nccl", bad).run("discover=NCCL"),
                    "ncclGetVersion returned 3");
        }

        @Tag("exhaustive")
        @Test
        void aTextFile() throws IOException {
            Path text = Files.writeString(temp.resolve("libnccl.so.2"), "INPUT ( -lnccl )\n# text");
            String output = new ChildJvm().property("jccl.nccl", text).run("discover=NCCL");
            assertMissing(output, "does not start with an ELF header");
            assertFalse(output.contains("stack guard"), output);
        }

        /** The dynamic loader would end the process when it reads what is not there. */
        @Tag("exhaustive")
        @ParameterizedTest
        @ValueSource(ints = {50, 100, 4096, 12_000})
        void aFileThatIsCutShort(int size) throws IOException {
            Path part = temp.resolve("libnccl.so.2");
            Files.write(part, Arrays.copyOf(Files.readAllBytes(nccl), size));
            String output = new ChildJvm().property("jccl.nccl", part).run("discover=NCCL");
            assertMissing(
                    output, "which cannot be used: it is truncated: it has " + size + " bytes of");
            assertFalse(output.contains("stack guard"), output);
            assertMissing(
                    new ChildJvm().variable("LD_LIBRARY_PATH", temp).run("discover=NCCL"),
                    "cannot be used: libnccl.so.2: "
                            + part
                            + ": it is truncated: it has "
                            + size
                            + " bytes of");
        }

        @Tag("exhaustive")
        @Test
        void aMissingDependency() throws IOException {
            Path gone = CLibrary.compile(temp.resolve("dep/libjcclgone.so.7"), "int gone = 1;");
            Path needy =
                    CLibrary.nccl(
                            temp.resolve("needy/libnccl.so.2"),
                            23007,
                            "-Wl,--no-as-needed",
                            gone.toString());
            Files.delete(gone);
            assertMissing(
                    new ChildJvm().property("jccl.nccl", needy).run("discover=NCCL"),
                    "libjcclgone.so.7: cannot open shared object file");
            // Found by the loader but not loadable is not the same as not found.
            assertMissing(
                    new ChildJvm()
                            .variable("LD_LIBRARY_PATH", temp.resolve("needy"))
                            .run("discover=NCCL"),
                    "NCCL was found but cannot be used: libnccl.so.2:"
                            + " libjcclgone.so.7: cannot open shared object file");
        }

        @Test
        void theTableSaysAllOfIt() {
            String output = new ChildJvm().property("jccl.nccl", temp.resolve("no")).run("nccl=");
            assertTrue(output.startsWith("UNAVAILABLE NCCL was not loaded: "), output);
            assertTrue(
                    output.contains("\n  system property jccl.nccl: " + temp.resolve("no") + ": "),
                    output);
        }

        // --- Copies in the process.

        @Tag("exhaustive")
        @Test
        void theMappedCopyIsUsed() {
            assertFound(
                    new ChildJvm().run("map=" + nccl, "discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (already mapped in this process)");
        }

        @Tag("exhaustive")
        @Test
        void preloadedCountsAsMapped() throws IOException {
            // LD_PRELOAD separates by spaces.
            Path copy = Files.copy(nccl, temp.resolve("libnccl.so.2"));
            assertFound(
                    new ChildJvm().variable("LD_PRELOAD", copy).run("discover=NCCL"),
                    "NCCL 2.30.7 from " + copy + " (already mapped in this process)");
        }

        @Tag("exhaustive")
        @Test
        void aSecondCopyIsRefused() {
            Path other = CLibrary.nccl(temp.resolve("other/libnccl.so.2"), 22803);
            assertMissing(
                    new ChildJvm().property("jccl.nccl", other).run("map=" + nccl, "discover=NCCL"),
                    "two copies of NCCL in one process corrupt each other: "
                            + nccl
                            + " is mapped already, and system property jccl.nccl names "
                            + other);
        }

        @Tag("exhaustive")
        @Test
        void twoMappedCopiesAreRefused() {
            Path other = CLibrary.nccl(temp.resolve("other/libnccl.so.2.28.3"), 22803);
            String output = new ChildJvm().run("map=" + nccl, "map=" + other, "discover=NCCL");
            assertMissing(output, "two copies of NCCL in one process corrupt each other, and ");
            assertTrue(output.contains(nccl.toString()), output);
            assertTrue(output.contains(other.toString()), output);
        }

        /** The second copy comes with the one that is loaded. */
        @Tag("exhaustive")
        @Test
        void aSecondCopyAsDependencyIsRefused() {
            Path inner = CLibrary.nccl(temp.resolve("inner/libnccl.so.1"), 22803);
            Path outer =
                    CLibrary.nccl(
                            temp.resolve("outer/libnccl.so.2"),
                            23007,
                            "-Wl,--no-as-needed",
                            inner.toString(),
                            "-Wl,-rpath," + inner.getParent());
            assertMissing(
                    new ChildJvm().property("jccl.nccl", outer).run("discover=NCCL"),
                    "two copies of NCCL in one process corrupt each other, and ");
        }

        @Tag("exhaustive")
        @ParameterizedTest
        @ValueSource(booleans = {true, false})
        void otherNamesOfTheMappedFileAreFine(boolean symbolic) throws IOException {
            Path name = temp.resolve("libnccl.so.2");
            if (symbolic) {
                Files.createSymbolicLink(name, nccl);
            } else {
                Files.createLink(name, nccl);
            }
            assertFound(
                    new ChildJvm().property("jccl.nccl", name).run("map=" + nccl, "discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (system property jccl.nccl)");
        }

        @Tag("exhaustive")
        @Test
        void theMappedCopyMayBeDeleted() {
            assertFound(
                    new ChildJvm().run("map=" + nccl, "delete=" + nccl, "discover=NCCL"),
                    "NCCL 2.30.7 from " + nccl + " (already mapped in this process)");
        }

        @Tag("exhaustive")
        @Test
        void theReplacementOfTheMappedCopyIsNotLoaded() throws IOException {
            Path next = CLibrary.nccl(temp.resolve("next/libnccl.so.2"), 23100);
            // A package manager replaces a file by a link of the same name.
            Path name = temp.resolve("libnccl.so.2");
            Files.copy(nccl, name, StandardCopyOption.REPLACE_EXISTING);
            Path link = temp.resolve("home/libnccl.so.2");
            Files.createDirectories(link.getParent());
            Files.createSymbolicLink(link, next);
            assertMissing(
                    new ChildJvm()
                            .property("jccl.nccl", link)
                            .run("map=" + name, "delete=" + name, "discover=NCCL"),
                    name + " (deleted or replaced since) is mapped already");
        }

        // --- The other libraries.

        @Tag("exhaustive")
        @Test
        void theOthersOfOneProcess() {
            Path cudart =
                    CLibrary.compile(
                            temp.resolve("cuda/lib64/libcudart.so.13"),
                            "int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }");
            Path cublas = CLibrary.compile(temp.resolve("cuda/lib64/libcublas.so.13"), CUBLAS);
            Path mpi =
                    CLibrary.mpi(
                            temp.resolve("ompi/lib/libmpi.so.40"), "Open MPI v5.0.3, package: x");
            String output =
                    new ChildJvm()
                            .variable("CUDA_HOME", temp.resolve("cuda"))
                            .variable("MPI_HOME", temp.resolve("ompi"))
                            .run("discover=CUDART", "discover=CUBLAS", "discover=MPI");
            assertFound(output, "the CUDA runtime 13.0 from " + cudart);
            assertFound(output, "cuBLAS 13.7.1 from " + cublas);
            assertFound(output, "MPI 5.0.3 from " + mpi);
        }

        @Tag("exhaustive")
        @ParameterizedTest
        @CsvSource({"12080, 12.8", "13000, 13.0"})
        void cudart(int code, String version) {
            Path file =
                    CLibrary.compile(
                            temp.resolve("cuda/lib64/libcudart.so." + code / 1000),
                            "int cudaRuntimeGetVersion(int *v) { *v = " + code + "; return 0; }");
            assertFound(
                    new ChildJvm()
                            .variable("CUDA_HOME", temp.resolve("cuda"))
                            .run("discover=CUDART"),
                    "the CUDA runtime " + version + " from " + file);
        }

        @Tag("exhaustive")
        @Test
        void cublas() {
            Path file = CLibrary.compile(temp.resolve("cuda/lib/libcublas.so.13"), CUBLAS);
            assertFound(
                    new ChildJvm()
                            .variable("CUDA_PATH", temp.resolve("cuda"))
                            .run("discover=CUBLAS"),
                    "cuBLAS 13.7.1 from " + file);
        }

        @Tag("exhaustive")
        @Test
        void openMpi() {
            Path file =
                    CLibrary.mpi(
                            temp.resolve("ompi/lib/libmpi.so.40"), "Open MPI v5.0.3, package: x");
            assertFound(
                    new ChildJvm().variable("MPI_HOME", temp.resolve("ompi")).run("discover=MPI"),
                    "MPI 5.0.3 from " + file);
        }

        @Tag("exhaustive")
        @Test
        void mpich() {
            Path file =
                    CLibrary.mpi(temp.resolve("mpich/libmpich.so.12"), "MPICH Version:\\t4.2.1");
            assertFound(
                    new ChildJvm().property("jccl.mpi", file).run("discover=MPI"),
                    "MPI 4.2.1 from " + file);
        }

        @Tag("exhaustive")
        @Test
        void anUnknownMpi() {
            Path file = CLibrary.mpi(temp.resolve("mpi/libmpi.so.12"), "Some MPI 4.2.1");
            assertMissing(
                    new ChildJvm().property("jccl.mpi", file).run("discover=MPI"),
                    "it reports itself as 'Some MPI 4.2.1', whose binary interface is unknown"
                            + " to JCCL");
        }
    }

    // --- Native access.

    @Test
    void deniedNativeAccessNamesTheFlag() {
        assertMissing(
                new ChildJvm().notEnabled("deny").run("discover=NCCL"),
                "start it with --enable-native-access=io.jccl.bindings\n");
        assertMissing(
                new ChildJvm().notEnabled("deny").classPath().run("discover=NCCL"),
                "start it with --enable-native-access=ALL-UNNAMED\n");
    }

    /** What a user sees who has read nothing about flags. */
    @Test
    void withoutFlagsItWorksAndTheJvmWarns() {
        withoutFlags(false);
    }

    @Tag("exhaustive")
    @Test
    void withoutFlagsOnTheClassPath() {
        withoutFlags(true);
    }

    private void withoutFlags(boolean classPath) {
        CLibrary.need();
        Path file = CLibrary.nccl(temp.resolve("libnccl.so.2"), 23007);
        ChildJvm jvm = new ChildJvm().notEnabled("warn").property("jccl.nccl", file);
        String output = (classPath ? jvm.classPath() : jvm).run("discover=NCCL");
        assertTrue(output.contains("FOUND NCCL 2.30.7"), output);
        assertTrue(
                output.contains(
                        "WARNING: Use --enable-native-access="
                                + (classPath ? "ALL-UNNAMED" : "io.jccl.bindings")),
                output);
    }

    /** On any machine discovery ends, and explains itself. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(NativeLibrary.class)
    void discoveryEnds(NativeLibrary library) {
        String output = new ChildJvm().run("discover=" + library, "files=" + library);
        assertTrue(output.startsWith("FOUND ") || output.startsWith("MISSING "), output);
        assertTrue(output.lines().count() > 1, output);
    }

    @Tag("exhaustive")
    @Test
    void discoveryOfAllEnds() {
        String output =
                new ChildJvm()
                        .run(
                                Arrays.stream(NativeLibrary.values())
                                        .map(library -> "discover=" + library)
                                        .toArray(String[]::new));
        assertEquals(
                NativeLibrary.values().length,
                output.lines()
                        .filter(line -> line.startsWith("FOUND ") || line.startsWith("MISSING "))
                        .count(),
                output);
    }

    // --- What is installed.

    @Tag("exhaustive")
    @Test
    void theInstalledCudaRuntime() {
        assertInstalled(NativeLibrary.CUDART, "libcudart.so.1");
    }

    @Test
    void theInstalledMpi() {
        assertInstalled(NativeLibrary.MPI, "libmpi");
    }

    private static void assertInstalled(NativeLibrary library, String name) {
        String output = new ChildJvm().run("discover=" + library);
        boolean present = !output.startsWith("MISSING " + capitalized(library) + " was not found");
        assumeTrue(present, library.title() + " is not installed here");
        String first = output.lines().findFirst().orElse("");
        assertTrue(first.startsWith("FOUND " + library.title() + " "), output);
        Path path = Path.of(first.replaceFirst(".* from ", "").replaceFirst(" \\([^)]*\\)$", ""));
        assertTrue(path.getFileName().toString().startsWith(name), output);
        String version = first.replaceFirst(" from .*", "").replaceFirst(".* ", "");
        assertTrue(Version.of(version).atLeast(library.minimum()), output);
        // The same file by its name.
        assertFound(
                new ChildJvm().property(library.property(), path).run("discover=" + library),
                version + " from " + path + " (system property " + library.property() + ")");
    }

    private static String capitalized(NativeLibrary library) {
        String title = library.title();
        return title.startsWith("the ") ? "T" + title.substring(1) : title;
    }

    private static void assertFound(String output, String text) {
        assertTrue(output.startsWith("FOUND "), output);
        assertTrue(output.contains(text), () -> "no '" + text + "' in: " + output);
    }

    /** That each library that was asked for is missing; a text for each. */
    private static void assertMissing(String output, String... texts) {
        assertTrue(output.startsWith("MISSING "), output);
        assertEquals(
                texts.length,
                output.lines().filter(line -> line.startsWith("MISSING ")).count(),
                output);
        for (String text : texts) {
            assertTrue(output.contains(text), () -> "no '" + text + "' in: " + output);
        }
    }
}

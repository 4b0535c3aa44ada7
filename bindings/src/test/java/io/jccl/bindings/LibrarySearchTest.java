package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.Discovery.Attempt;
import io.jccl.bindings.Discovery.Found;
import io.jccl.bindings.Discovery.Missing;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which library a search takes on which machine, and what it says. */
class LibrarySearchTest {
    private static final String DEB = "/usr/lib/x86_64-linux-gnu/libnccl.so.2";
    private static final String VENV_WHEEL =
            "/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";

    private final FakeMachine machine = new FakeMachine();

    // --- The order.

    /** Every place has a copy; the first one is taken away again and again. */
    @Test
    void placesComeInTheirOrder() {
        List<List<String>> inOrder =
                List.of(
                        List.of("/opt/mine/libnccl.so.2", "system property jccl.nccl"),
                        List.of("/nccl/lib/libnccl.so.2", "environment variable NCCL_HOME"),
                        List.of("/app/libnccl.so.2", "already mapped in this process"),
                        List.of("/cuda/lib64/libnccl.so.2", "environment variable CUDA_HOME"),
                        List.of("/cuda12/lib64/libnccl.so.2", "environment variable CUDA_PATH"),
                        List.of("/conda/lib/libnccl.so.2", "environment variable CONDA_PREFIX"),
                        List.of(
                                "/conda/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
                                "pip wheels of CONDA_PREFIX"),
                        List.of("/cache/libnccl.so.2", "dynamic loader"),
                        List.of("/ld/libnccl.so.2", "environment variable LD_LIBRARY_PATH"),
                        List.of("/usr/local/cuda/lib64/libnccl.so.2", "usual folder"),
                        List.of("/usr/local/cuda-13.10/lib64/libnccl.so.2", "usual folder"),
                        List.of("/usr/local/cuda-13.9/lib64/libnccl.so.2", "usual folder"),
                        List.of(DEB, "usual folder"),
                        List.of("/usr/lib64/libnccl.so.2", "usual folder"),
                        List.of("/usr/local/lib/libnccl.so.2", "usual folder"),
                        List.of(VENV_WHEEL, "pip wheels of VIRTUAL_ENV"),
                        List.of("/py/nvidia/nccl/lib/libnccl.so.2", "pip wheels of PYTHONPATH"),
                        List.of(
                                "/python/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2",
                                "pip wheels of python3 on PATH"),
                        List.of(
                                "/home/me/.local/lib/python3.11/site-packages/nvidia/nccl/lib"
                                        + "/libnccl.so.2",
                                "pip wheels"),
                        List.of(
                                "/home/me/.pyenv/versions/3.12.1/lib/python3.12/site-packages"
                                        + "/nvidia/nccl/lib/libnccl.so.2",
                                "pip wheels"),
                        List.of(
                                "/home/me/.pyenv/versions/3.9.18/lib/python3.9/site-packages"
                                        + "/nvidia/nccl/lib/libnccl.so.2",
                                "pip wheels"),
                        List.of(
                                "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib"
                                        + "/libnccl.so.2",
                                "pip wheels"),
                        List.of(
                                "/usr/lib/python3/dist-packages/nvidia/nccl/lib/libnccl.so.2",
                                "pip wheels"),
                        List.of(
                                "/opt/conda/lib/python3.10/site-packages/nvidia/nccl/lib"
                                        + "/libnccl.so.2",
                                "pip wheels"));
        for (int first = 0; first < inOrder.size(); first++) {
            FakeMachine m =
                    new FakeMachine()
                            .variable("VIRTUAL_ENV", "/venv")
                            .variable("CONDA_PREFIX", "/conda")
                            .variable("CUDA_HOME", "/cuda")
                            .variable("CUDA_PATH", "/cuda12/")
                            .variable("LD_LIBRARY_PATH", "/none::/ld")
                            .variable("PYTHONPATH", "/none:/py")
                            .variable("PATH", "/none:/elsewhere/bin")
                            .link("/elsewhere/bin/python3", "/python/bin/python3.9")
                            .broken("/python/bin/python3.9", "a program");
            for (List<String> place : inOrder.subList(first, inOrder.size())) {
                String path = place.getFirst();
                m.library(path, "2.20." + inOrder.indexOf(place));
                switch (place.getLast()) {
                    case "system property jccl.nccl" -> m.property("jccl.nccl", path);
                    case "environment variable NCCL_HOME" -> m.variable("NCCL_HOME", "/nccl");
                    case "dynamic loader" -> m.loaderFinds("libnccl.so.2", path);
                    case "already mapped in this process" -> {
                        if (place == inOrder.get(first)) {
                            m.map(path);
                        }
                    }
                    default -> {}
                }
            }
            Found found = found(NativeLibrary.NCCL, m);
            assertEquals(inOrder.get(first).getFirst(), found.loaded().path());
            assertEquals(inOrder.get(first).getLast(), found.loaded().how());
            assertEquals("2.20." + first, found.loaded().version().toString());
            assertEquals(NativeLibrary.NCCL, found.loaded().library());
        }
    }

    @Test
    void attemptsEndWithTheOneThatServed() {
        machine.variable("CONDA_PREFIX", "/conda").library("/conda/bin/x", "1");
        machine.broken(DEB, "libgone.so.1: cannot open shared object file")
                .library("/usr/lib64/libnccl.so.2", "2.30.7");
        assertEquals(
                List.of(
                        new Attempt(
                                "environment variable CONDA_PREFIX",
                                "/conda",
                                "no libnccl.so.2 in it"),
                        new Attempt(
                                "pip wheels of CONDA_PREFIX",
                                "/conda/lib/python3*/{site,dist}-packages/nvidia/*/lib",
                                "no such folder"),
                        new Attempt("dynamic loader", "libnccl.so.2", "unknown to the loader"),
                        new Attempt("usual folder", "/usr/local/cuda", "no such folder"),
                        new Attempt(
                                "usual folder",
                                DEB,
                                "libgone.so.1: cannot open shared object file"),
                        new Attempt("usual folder", "/usr/lib64/libnccl.so.2", "loaded")),
                found(NativeLibrary.NCCL).attempts());
    }

    @Test
    void aFolderIsLookedAtOnce() {
        machine.variable("CONDA_PREFIX", "/usr/local/cuda")
                .link("/usr/local/cuda", "/usr/local/cuda-13.0")
                .broken("/usr/local/cuda-13.0/lib64/libnccl.so.2", "damaged");
        Missing missing = missing(NativeLibrary.NCCL);
        assertEquals(
                1,
                missing.attempts().stream().filter(a -> a.outcome().equals("damaged")).count(),
                missing::message);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/home",
                "/home/libnccl.so.2",
                "/home/lib",
                "/home/",
                " /home",
                "../home",
                "../home/lib/libnccl.so.2"
            })
    void thePropertyMayBeAFileOrAFolder(String value) {
        machine.library("/home/libnccl.so.2", "2.30.7")
                .link("/home/lib", "/home")
                .property("jccl.nccl", value);
        assertEquals("/home/libnccl.so.2", found(NativeLibrary.NCCL).loaded().path());
    }

    @ParameterizedTest
    @ValueSource(strings = {"lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"})
    void homesHaveTheirLibrariesInOneOfSomeFolders(String sub) {
        machine.library("/home/" + sub + "/libnccl.so.2", "2.30.7").variable("NCCL_HOME", "/home");
        assertEquals("/home/" + sub + "/libnccl.so.2", found(NativeLibrary.NCCL).loaded().path());
    }

    @Test
    void anyFileNameWillDoIfThePropertyNamesIt() {
        machine.library("/x/my-nccl.so", "2.30.7").property("jccl.nccl", "/x/my-nccl.so");
        assertEquals("/x/my-nccl.so", found(NativeLibrary.NCCL).loaded().path());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", " "})
    void setToNothingIsNotSet(String nothing) {
        machine.property("jccl.nccl", nothing)
                .variable("NCCL_HOME", nothing)
                .variable("CONDA_PREFIX", nothing)
                .library(DEB, "2.28.3");
        assertEquals("usual folder", found(NativeLibrary.NCCL).loaded().how());
    }

    @Test
    void pathsHaveTheirLinksResolved() {
        machine.library("/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3", "2.28.3")
                .link(DEB, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3");
        assertEquals(
                "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3",
                found(NativeLibrary.NCCL).loaded().path());
    }

    // --- Sonames, wheels, processors.

    @Test
    void theNewerInterfaceComesFirst() {
        String cu13 = "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13";
        String cu12 = "/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12";
        machine.variable("VIRTUAL_ENV", "/venv").library(cu13, "13.0").library(cu12, "12.8");
        assertEquals(cu13, found(NativeLibrary.CUDART).loaded().path());

        FakeMachine loader =
                new FakeMachine()
                        .library("/a/libcudart.so.12", "12.8")
                        .library("/b/libcudart.so.13", "13.0")
                        .loaderFinds("libcudart.so.12", "/a/libcudart.so.12")
                        .loaderFinds("libcudart.so.13", "/b/libcudart.so.13");
        assertEquals("/b/libcudart.so.13", found(NativeLibrary.CUDART, loader).loaded().path());
    }

    @Test
    void theOlderInterfaceServesWhereTheNewerDoesNot() {
        String site = "/venv/lib/python3.12/site-packages/nvidia/";
        machine.variable("VIRTUAL_ENV", "/venv")
                .broken(site + "cu13/lib/libcublas.so.13", "no libcublasLt")
                .library(site + "cublas/lib/libcublas.so.12", "12.9.1");
        Found found = found(NativeLibrary.CUBLAS);
        assertEquals(site + "cublas/lib/libcublas.so.12", found.loaded().path());
        assertTrue(
                found.attempts().stream().anyMatch(a -> a.outcome().equals("no libcublasLt")),
                found::toString);
    }

    @Test
    void amongEqualWheelsTheFirstNameIsTaken() {
        String site = "/venv/lib/python3.12/site-packages/nvidia/";
        machine.variable("VIRTUAL_ENV", "/venv")
                .library(site + "zz/lib/libcudart.so.13", "13.1")
                .library(site + "cu13/lib/libcudart.so.13", "13.0");
        assertEquals(
                site + "cu13/lib/libcudart.so.13", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void theNewestPythonComesFirst() {
        machine.variable("VIRTUAL_ENV", "/venv")
                .library("/venv/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2", "2.18.1")
                .library(VENV_WHEEL, "2.30.7");
        assertEquals(VENV_WHEEL, found(NativeLibrary.NCCL).loaded().path());
    }

    @ParameterizedTest
    @CsvSource({
        "amd64, /usr/lib/x86_64-linux-gnu",
        "aarch64, /usr/lib/aarch64-linux-gnu",
        "amd64, /usr/local/cuda/targets/x86_64-linux/lib",
        "aarch64, /usr/local/cuda/targets/sbsa-linux/lib",
        "aarch64, /usr/local/cuda/targets/aarch64-linux/lib",
        "ppc64le, /usr/lib/powerpc64le-linux-gnu",
        "ppc64le, /usr/local/cuda/targets/ppc64le-linux/lib"
    })
    void foldersOfTheProcessor(String arch, String folder) {
        machine.property("os.arch", arch).library(folder + "/libcudart.so.12", "12.6");
        assertEquals(folder + "/libcudart.so.12", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void foldersOfOtherProcessorsAreNotLookedAt() {
        machine.property("os.arch", "aarch64").library(DEB, "2.30.7");
        missing(NativeLibrary.NCCL);
    }

    // --- Settings that are wrong.

    @ParameterizedTest
    @CsvSource({
        "NCCL, jccl.nccl, libnccl.so.2",
        "CUDART, jccl.cudart, libcudart.so.13 or libcudart.so.12",
        "CUBLAS, jccl.cublas, libcublas.so.13 or libcublas.so.12",
        "MPI, jccl.mpi, libmpi.so.40 or libmpi_abi.so.1 or libmpich.so.12 or libmpi.so.12"
    })
    void aPropertyThatLeadsNowhereFails(NativeLibrary library, String property, String expected) {
        everywhere(library);
        machine.property(property, "/tpying/error");
        assertEquals(
                List.of(
                        new Attempt(
                                "system property " + property, "/tpying/error", "does not exist")),
                says(
                        missing(library),
                        "was not loaded",
                        "system property " + property + " is '/tpying/error'",
                        "does not exist",
                        "expected a file, or a folder with " + expected,
                        "correct or remove the setting"));
        assertEquals(List.of(), machine.opened);
    }

    @ParameterizedTest
    @CsvSource({
        "NCCL, NCCL_HOME",
        "CUDART, CUDA_HOME",
        "CUDART, CUDA_PATH",
        "CUBLAS, CUDA_HOME",
        "MPI, MPI_HOME"
    })
    void aHomeThatLeadsNowhereFails(NativeLibrary library, String variable) {
        everywhere(library);
        machine.variable(variable, "/nowhere");
        says(
                missing(library),
                "environment variable " + variable + " is '/nowhere'",
                "does not exist",
                "expected a folder with " + library.sonames().getFirst(),
                "lib64, lib");
        assertEquals(List.of(), machine.opened);
    }

    @ParameterizedTest
    @CsvSource({"NCCL, NCCL_HOME", "CUDART, CUDA_HOME", "CUDART, CUDA_PATH", "MPI, MPI_HOME"})
    void aHomeWithoutTheLibraryFails(NativeLibrary library, String variable) {
        everywhere(library);
        machine.variable(variable, "/home").library("/home/lib/libother.so", "1");
        says(
                missing(library),
                variable + " is '/home', which holds no " + library.sonames().getFirst());
        assertEquals(List.of(), machine.opened);
    }

    @Test
    void theFirstOfTwoHomesDecides() {
        machine.variable("CUDA_HOME", "/nowhere")
                .variable("CUDA_PATH", "/cuda")
                .library("/cuda/lib64/libcudart.so.13", "13.0");
        says(missing(NativeLibrary.CUDART), "CUDA_HOME is '/nowhere'");
    }

    @Test
    void thePropertyHidesBrokenHomes() {
        machine.variable("NCCL_HOME", "/nowhere")
                .property("jccl.nccl", "/x/libnccl.so.2")
                .library("/x/libnccl.so.2", "2.30.7");
        found(NativeLibrary.NCCL);
    }

    @Test
    void aHomeIsNoFile() {
        machine.variable("NCCL_HOME", DEB).library(DEB, "2.30.7");
        says(missing(NativeLibrary.NCCL), "NCCL_HOME is '" + DEB + "', which is a file");
    }

    @Test
    void aSettingThatMayNotBeReadFails() {
        everywhere(NativeLibrary.NCCL);
        machine.property("jccl.nccl", "/root/libnccl.so.2").closed("/root");
        says(missing(NativeLibrary.NCCL), "which this user may not read");
    }

    @Test
    void aSettingThatDoesNotLoadFails() {
        everywhere(NativeLibrary.NCCL);
        machine.property("jccl.nccl", "/x/libnccl.so.2")
                .broken("/x/libnccl.so.2", "file too short");
        says(
                missing(NativeLibrary.NCCL),
                "NCCL was not loaded",
                "system property jccl.nccl is '/x/libnccl.so.2', which cannot be used: file too short");
        assertEquals(List.of("/x/libnccl.so.2"), machine.opened);
    }

    @Test
    void aSettingThatIsAnotherLibraryFails() {
        everywhere(NativeLibrary.NCCL);
        machine.variable("NCCL_HOME", "/x")
                .stranger("/x/lib/libnccl.so.2", "it has no function ncclGetVersion");
        says(
                missing(NativeLibrary.NCCL),
                "NCCL_HOME is '/x', but /x/lib/libnccl.so.2 cannot be used: it has no function"
                        + " ncclGetVersion");
        assertEquals(List.of("/x/lib/libnccl.so.2"), machine.opened);
    }

    @Test
    void aHomeOfAnOlderVersionSaysWhatItHolds() {
        machine.variable("CUDA_HOME", "/usr/local/cuda-11.8")
                .library("/usr/local/cuda-11.8/lib64/libcudart.so.11.8.89", "11.8")
                .link(
                        "/usr/local/cuda-11.8/lib64/libcudart.so.11.0",
                        "/usr/local/cuda-11.8/lib64/libcudart.so.11.8.89");
        says(
                missing(NativeLibrary.CUDART),
                "holds no libcudart.so.13 or libcudart.so.12 (but libcudart.so.11.0,"
                        + " libcudart.so.11.8.89)");
    }

    /** As after the package was removed, and where a file was unpacked into a folder. */
    @Test
    void aHomeWhoseLibraryIsNoFileSaysWhatItIs() {
        machine.variable("NCCL_HOME", "/n").link("/n/lib/libnccl.so.2", "/n/lib/libnccl.so.2.30.7");
        says(
                missing(NativeLibrary.NCCL),
                "holds no libnccl.so.2 (but libnccl.so.2, a link to nothing or no file)");
        machine.variable("NCCL_HOME", "/f").library("/f/lib/libnccl.so.2/x", "1.0");
        says(missing(NativeLibrary.NCCL), "holds no libnccl.so.2 (but libnccl.so.2, a folder)");
    }

    // --- Settings that only say where to look.

    @ParameterizedTest
    @CsvSource({"CUDA_HOME, /cuda", "CUDA_PATH, /cuda", "CUDA_HOME, /nowhere"})
    void aToolkitWithoutNcclIsNoMistake(String variable, String value) {
        machine.variable(variable, value)
                .library("/cuda/lib64/libcudart.so.13", "13.0")
                .library(DEB, "2.30.7");
        Found found = found(NativeLibrary.NCCL);
        assertEquals("usual folder", found.loaded().how());
        assertEquals("environment variable " + variable, found.attempts().getFirst().how());
    }

    @Test
    void aToolkitWithoutCublasIsNoMistake() {
        machine.variable("CUDA_HOME", "/cuda")
                .library("/cuda/lib64/libcudart.so.13", "13.0")
                .library("/usr/lib64/libcublas.so.13", "13.1.1");
        Found found = found(NativeLibrary.CUBLAS);
        assertEquals("/usr/lib64/libcublas.so.13", found.loaded().path());
        assertEquals(
                new Attempt(
                        "environment variable CUDA_HOME",
                        "/cuda",
                        "no libcublas.so.13 or libcublas.so.12 in it"),
                found.attempts().getFirst());
    }

    @Test
    void aToolkitWithABrokenCublasIsAMistake() {
        everywhere(NativeLibrary.CUBLAS);
        machine.variable("CUDA_HOME", "/cuda").broken("/cuda/lib64/libcublas.so.13", "no Lt");
        says(missing(NativeLibrary.CUBLAS), "CUDA_HOME is '/cuda'", "no Lt");
    }

    @ParameterizedTest
    @EnumSource(NativeLibrary.class)
    void anEnvironmentWithoutTheLibraryIsNoMistake(NativeLibrary library) {
        everywhere(library);
        machine.variable("CONDA_PREFIX", "/conda").variable("VIRTUAL_ENV", "/gone");
        found(library);
    }

    // --- Copies in the process.

    @Test
    void theMappedCopyIsUsed() {
        everywhere(NativeLibrary.NCCL);
        machine.variable("CONDA_PREFIX", "/conda")
                .library("/conda/lib/libnccl.so.2", "2.30.7")
                .library("/app/libnccl.so.2.21.5", "2.21.5")
                .map("/app/libnccl.so.2.21.5");
        LoadedLibrary loaded = found(NativeLibrary.NCCL).loaded();
        assertEquals("/app/libnccl.so.2.21.5", loaded.path());
        assertEquals("already mapped in this process", loaded.how());
        assertEquals(List.of("/app/libnccl.so.2.21.5"), machine.opened);
    }

    @Test
    void aSettingThatLeadsToTheMappedCopyIsFine() {
        machine.library("/app/libnccl.so.2.21.5", "2.21.5")
                .link("/other/libnccl.so.2", "/app/libnccl.so.2.21.5")
                .property("jccl.nccl", "/other")
                .map("/app/libnccl.so.2.21.5");
        LoadedLibrary loaded = found(NativeLibrary.NCCL).loaded();
        assertEquals("/app/libnccl.so.2.21.5", loaded.path());
        assertEquals("system property jccl.nccl", loaded.how());
    }

    @ParameterizedTest
    @CsvSource({"NCCL, NCCL_HOME, libnccl.so.2, 2.30.7", "MPI, MPI_HOME, libmpi.so.40, 4.1.4"})
    void aSettingThatLeadsToASecondCopyIsRefused(
            NativeLibrary library, String variable, String name, String version) {
        machine.library("/app/" + name, version)
                .library("/mine/lib/" + name, version)
                .variable(variable, "/mine")
                .map("/app/" + name);
        says(
                missing(library),
                library.title() + " was refused",
                "two copies of " + library.title() + " in one process",
                "/app/" + name + " is mapped already",
                "environment variable " + variable + " names /mine/lib/" + name,
                "remove the setting");
        assertEquals(List.of(), machine.opened);
    }

    @Test
    void twoMappedCopiesAreRefused() {
        machine.library("/a/libnccl.so.2", "2.30.7")
                .library("/b/libnccl.so.2.28.3", "2.28.3")
                .map("/a/libnccl.so.2")
                .map("/b/libnccl.so.2.28.3");
        Missing missing = missing(NativeLibrary.NCCL);
        says(missing, "NCCL was refused", "/a/libnccl.so.2 and /b/libnccl.so.2.28.3 are mapped");
        assertEquals(2, missing.attempts().size());
        assertEquals(List.of(), machine.opened);
    }

    @Test
    void oneCopyMappedByTwoNamesIsOne() {
        machine.library("/a/libnccl.so.2", "2.30.7")
                .link("/b", "/a")
                .map("/a/libnccl.so.2")
                .map("/b/libnccl.so.2");
        assertEquals("/a/libnccl.so.2", found(NativeLibrary.NCCL).loaded().path());
    }

    @Test
    void pluginsOfNcclAreNoCopies() {
        machine.library("/a/libnccl-net.so", "1")
                .library("/a/libnccl_static.so.2", "1")
                .map("/a/libnccl-net.so")
                .map("/a/libnccl_static.so.2")
                .library(DEB, "2.30.7");
        assertEquals(DEB, found(NativeLibrary.NCCL).loaded().path());
    }

    @Test
    void aMappedFileThatWasReplacedIsReachedByItsSoname() {
        machine.library("/app/libnccl.so.2", "2.30.7")
                .mapDeleted("/app/libnccl.so.2", "libnccl.so.2", "2.21.5");
        LoadedLibrary loaded = found(NativeLibrary.NCCL).loaded();
        assertEquals(List.of("libnccl.so.2"), machine.opened);
        assertEquals("2.21.5", loaded.version().toString());
        assertEquals("/app/libnccl.so.2", loaded.path());
    }

    @Test
    void theReplacementOfAMappedFileIsASecondCopy() {
        machine.library("/app/libnccl.so.2", "2.30.7")
                .mapDeleted("/app/libnccl.so.2", "libnccl.so.2", "2.21.5")
                .property("jccl.nccl", "/app/libnccl.so.2");
        says(missing(NativeLibrary.NCCL), "/app/libnccl.so.2 (deleted or replaced since)");
    }

    @Test
    void aMappedCudaRuntimeIsPreferred() {
        everywhere(NativeLibrary.CUDART);
        machine.library("/app/libcudart.so.12.4.127", "12.4").map("/app/libcudart.so.12.4.127");
        assertEquals("/app/libcudart.so.12.4.127", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void aSecondCudaRuntimeIsLegal() {
        machine.library("/app/libcudart.so.12", "12.4")
                .library("/cuda/lib64/libcudart.so.13", "13.0")
                .variable("CUDA_HOME", "/cuda")
                .map("/app/libcudart.so.12");
        assertEquals("/cuda/lib64/libcudart.so.13", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void anUnusableMappedCudaRuntimeDoesNotEndTheSearch() {
        machine.broken("/app/libcudart.so.12", "gone")
                .map("/app/libcudart.so.12")
                .library("/usr/lib64/libcudart.so.13", "13.0");
        assertEquals("/usr/lib64/libcudart.so.13", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void anotherSonameInTheProcessIsNotTaken() {
        machine.library("/app/libcudart.so.11.0", "11.8")
                .map("/app/libcudart.so.11.0")
                .library("/usr/lib64/libcudart.so.13", "13.0");
        assertEquals("/usr/lib64/libcudart.so.13", found(NativeLibrary.CUDART).loaded().path());
    }

    // --- Versions.

    @ParameterizedTest
    @CsvSource({
        "NCCL, libnccl.so.2, 2.6.4, 2.7",
        "CUDART, libcudart.so.12, 11.8, 12.0",
        "CUBLAS, libcublas.so.12, 11.9.2, 12.0",
        "MPI, libmpi.so.40, 3.1.6, 4.0"
    })
    void tooOldIsRefused(NativeLibrary library, String name, String version, String minimum) {
        machine.library("/usr/lib64/" + name, version);
        Missing missing = missing(library);
        says(
                missing,
                "/usr/lib64/" + name,
                "version " + version,
                "older than " + minimum,
                "install");
        assertEquals(Version.of(minimum), library.minimum());
    }

    @Test
    void theOldestUsableIsUsed() {
        machine.library(DEB, "2.7.3");
        found(NativeLibrary.NCCL);
    }

    @Test
    void tooOldIsRefusedWhereItIsSetToo() {
        machine.library("/x/libnccl.so.2", "2.4.8").property("jccl.nccl", "/x");
        says(
                missing(NativeLibrary.NCCL),
                "jccl.nccl is '/x', but /x/libnccl.so.2 cannot be used: it is version 2.4.8, older"
                        + " than 2.7");
    }

    /** The old one stays in the process, and a second NCCL beside it would do harm. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void afterANcclThatIsTooOldNoOtherIsLoaded(boolean byLoader) {
        machine.library(DEB, "2.4.8").library("/usr/lib64/libnccl.so.2", "2.30.7");
        if (byLoader) {
            machine.loaderFinds("libnccl.so.2", DEB);
        }
        says(missing(NativeLibrary.NCCL), DEB + ": it is version 2.4.8");
        assertFalse(machine.opened.contains("/usr/lib64/libnccl.so.2"));
    }

    @Test
    void afterACudaRuntimeThatIsTooOldAnotherIsLoaded() {
        machine.library("/usr/lib64/libcudart.so.12", "11.8")
                .library("/usr/local/lib/libcudart.so.12", "12.8");
        assertEquals("/usr/local/lib/libcudart.so.12", found(NativeLibrary.CUDART).loaded().path());
    }

    @Test
    void aFileThatDoesNotLoadDoesNotEndTheSearch() {
        machine.broken(DEB, "damaged").library("/usr/lib64/libnccl.so.2", "2.30.7");
        assertEquals("/usr/lib64/libnccl.so.2", found(NativeLibrary.NCCL).loaded().path());
    }

    // --- MPI.

    @ParameterizedTest
    @ValueSource(strings = {"libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1"})
    void otherMpisAreFound(String name) {
        machine.library("/usr/lib/x86_64-linux-gnu/" + name, "4.2");
        assertEquals("/usr/lib/x86_64-linux-gnu/" + name, found(NativeLibrary.MPI).loaded().path());
    }

    @Test
    void mpichInMpiHomeIsUsed() {
        machine.variable("MPI_HOME", "/sw/mpich").library("/sw/mpich/lib/libmpi.so.12", "4.2");
        assertEquals("/sw/mpich/lib/libmpi.so.12", found(NativeLibrary.MPI).loaded().path());
    }

    @ParameterizedTest
    @CsvSource({
        "MPI_LOCALNRANKS, libmpich.so.12",
        "OMPI_COMM_WORLD_SIZE, libmpi.so.40",
        "NEITHER, libmpi.so.40"
    })
    void theMpiThatStartedTheProcessIsTaken(String variable, String name) {
        String folder = "/usr/lib/x86_64-linux-gnu/";
        machine.variable(variable, "2")
                .library(folder + "libmpich.so.12", "4.2")
                .library(folder + "libmpi_abi.so.1", "6.0")
                .library(folder + "libmpi.so.40", "4.1.4");
        assertEquals(folder + name, found(NativeLibrary.MPI).loaded().path());
    }

    /** Debian's libmpi_abi.so.1 is a link to the file of one of the MPIs. */
    @Test
    void aMappedLibraryOfTheStandardAbiIsUsedUnderAnyName() {
        String folder = "/usr/lib/x86_64-linux-gnu/";
        machine.library(folder + "libmpi.so.40", "6.0")
                .library(folder + "libmpi_abi_mpich.so.1.0.0", "5.0")
                .map(folder + "libmpi_abi_mpich.so.1.0.0");
        assertEquals(
                folder + "libmpi_abi_mpich.so.1.0.0", found(NativeLibrary.MPI).loaded().path());
    }

    @Test
    void aDraftOfTheStandardAbiIsNamed() {
        machine.library("/usr/lib/x86_64-linux-gnu/libmpi_abi.so.0", "1");
        says(
                missing(NativeLibrary.MPI),
                "MPI was not found, but an MPI with a draft of the standard binary interface",
                "version 1 of the standard one");
    }

    @Test
    void mpichBesideOpenMpiDoesNoHarm() {
        machine.library("/usr/lib/x86_64-linux-gnu/libmpich.so.12", "1")
                .library("/usr/lib64/openmpi/lib/libmpi.so.40", "4.1.1");
        assertEquals(
                "/usr/lib64/openmpi/lib/libmpi.so.40", found(NativeLibrary.MPI).loaded().path());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/usr/lib/x86_64-linux-gnu/openmpi/lib",
                "/usr/lib64/openmpi/lib",
                "/usr/lib/x86_64-linux-gnu",
                "/opt/openmpi-5.0/lib",
                "/opt/amazon/openmpi/lib64",
                "/venv/lib",
                "/sw/ompi/lib"
            })
    void openMpiIsFound(String folder) {
        machine.library(folder + "/libmpi.so.40", "5.0.3")
                .variable("VIRTUAL_ENV", "/venv")
                .variable("PATH", "/usr/bin:/links")
                .link("/links/mpirun", "/sw/ompi/bin/mpirun")
                .broken("/sw/ompi/bin/mpirun", "a program");
        assertEquals(folder + "/libmpi.so.40", found(NativeLibrary.MPI).loaded().path());
    }

    @Test
    void theMpiOfTheLauncherComesFirst() {
        machine.library("/usr/lib64/libmpi.so.40", "4.1.4")
                .library("/sw/ompi/lib/libmpi.so.40", "5.0.3")
                .variable("PATH", "/sw/ompi/bin")
                .broken("/sw/ompi/bin/mpirun", "a program");
        LoadedLibrary loaded = found(NativeLibrary.MPI).loaded();
        assertEquals("/sw/ompi/lib/libmpi.so.40", loaded.path());
        assertEquals("mpirun on PATH", loaded.how());
    }

    // --- Nothing there.

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "NCCL | NCCL was not found: install libnccl2, or pip install nvidia-nccl-cu13, or"
                        + " set NCCL_HOME or -Djccl.nccl=FILE",
                "CUDART | The CUDA runtime was not found: install the CUDA toolkit 12 or 13, or pip"
                        + " install nvidia-cuda-runtime, or set CUDA_HOME, CUDA_PATH or"
                        + " -Djccl.cudart=FILE",
                "CUBLAS | cuBLAS was not found: install the CUDA toolkit 12 or 13, or pip install"
                        + " nvidia-cublas, or set CUDA_HOME, CUDA_PATH or -Djccl.cublas=FILE",
                "MPI | MPI was not found: install Open MPI (openmpi-bin on Debian, openmpi on"
                        + " Fedora) or MPICH (mpich), or set MPI_HOME or -Djccl.mpi=FILE"
            })
    void nothingThereSaysWhatToDo(NativeLibrary library, String reason) {
        Missing missing = missing(library);
        assertEquals(reason, missing.reason());
        assertEquals(library, missing.library());
        List<String> lines = missing.message().lines().toList();
        assertEquals(reason, lines.getFirst());
        assertEquals(
                "  dynamic loader: " + library.sonames().getFirst() + ": unknown to the loader",
                lines.get(1));
        assertEquals(1 + missing.attempts().size(), lines.size());
        assertTrue(lines.contains("  usual folder: /usr/lib64: no such folder"), missing::message);
    }

    @ParameterizedTest
    @CsvSource({"Windows 11, amd64, 64", "Mac OS X, aarch64, 64", "Linux, arm, 32"})
    void otherPlatformsAreNamed(String os, String arch, String bits) {
        everywhere(NativeLibrary.NCCL);
        machine.property("os.name", os)
                .property("os.arch", arch)
                .property("sun.arch.data.model", bits);
        says(missing(NativeLibrary.NCCL), os + " on " + arch, "64-bit Linux only");
        assertEquals(List.of(), machine.opened);
    }

    @Test
    void refusedNativeAccessIsNamed() {
        everywhere(NativeLibrary.NCCL);
        machine.refuseNativeAccess("start with the flag");
        assertEquals("start with the flag", missing(NativeLibrary.NCCL).reason());
        assertEquals(List.of(), machine.opened);
    }

    // --- All copies.

    @Test
    void allCopiesAreListedOnce() {
        machine.variable("NCCL_HOME", "/nccl")
                .variable("VIRTUAL_ENV", "/venv")
                .variable("LD_LIBRARY_PATH", "/ld:/usr/lib64")
                .library("/nccl/lib/libnccl.so.2", "2.29.2")
                .library("/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3", "2.28.3")
                .link(DEB, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3")
                .link("/ld/libnccl.so.2", DEB)
                .library(VENV_WHEEL, "2.30.4")
                .library("/app/libnccl.so.2", "2.21.5")
                .map("/app/libnccl.so.2");
        assertEquals(
                List.of(
                        "/app/libnccl.so.2 (already mapped in this process)",
                        "/nccl/lib/libnccl.so.2 (environment variable NCCL_HOME)",
                        "/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.3"
                                + " (environment variable LD_LIBRARY_PATH)",
                        VENV_WHEEL + " (pip wheels of VIRTUAL_ENV)"),
                files(NativeLibrary.NCCL));
        assertEquals(List.of(), machine.opened);
    }

    @Test
    void allSonamesAreListed() {
        machine.library("/usr/lib64/libcudart.so.12", "12.8")
                .library("/usr/lib64/libcudart.so.13", "13.0")
                .library("/x/any.so", "13.1")
                .property("jccl.cudart", "/x/any.so");
        assertEquals(
                List.of(
                        "/x/any.so (system property jccl.cudart)",
                        "/usr/lib64/libcudart.so.13 (usual folder)",
                        "/usr/lib64/libcudart.so.12 (usual folder)"),
                files(NativeLibrary.CUDART));
    }

    @Test
    void brokenSettingsDoNotHideCopies() {
        machine.property("jccl.nccl", "/nowhere")
                .variable("NCCL_HOME", "/nowhere")
                .library(DEB, "2.30.7");
        assertEquals(List.of(DEB + " (usual folder)"), files(NativeLibrary.NCCL));
    }

    // --- Help.

    private List<String> files(NativeLibrary library) {
        return LibrarySearch.files(library, machine).stream().map(LibraryFile::toString).toList();
    }

    /** Good copies that a search which goes on would find. */
    private void everywhere(NativeLibrary library) {
        String name = library.sonames().getFirst();
        machine.library("/usr/lib64/" + name, "20.0")
                .library("/cache/" + name, "20.0")
                .loaderFinds(name, "/cache/" + name);
    }

    private Found found(NativeLibrary library) {
        return found(library, machine);
    }

    private static Found found(NativeLibrary library, FakeMachine machine) {
        LibrarySearch.Result result = LibrarySearch.search(library, machine);
        assertNotNull(result.symbols(), () -> result.discovery().toString());
        Found found = assertInstanceOf(Found.class, result.discovery());
        assertEquals("loaded", found.attempts().getLast().outcome());
        return found;
    }

    private Missing missing(NativeLibrary library) {
        LibrarySearch.Result result = LibrarySearch.search(library, machine);
        assertNull(result.symbols());
        Missing missing = assertInstanceOf(Missing.class, result.discovery());
        assertFalse(missing.attempts().isEmpty());
        return missing;
    }

    private static List<Attempt> says(Missing missing, String... parts) {
        for (String part : parts) {
            assertTrue(
                    missing.reason().contains(part),
                    () -> "no '" + part + "' in: " + missing.message());
        }
        return missing.attempts();
    }
}

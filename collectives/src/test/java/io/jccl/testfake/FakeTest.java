package io.jccl.testfake;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeApi;
import io.jccl.bindings.NcclApi;
import io.jccl.testfake.FakeBuild.Ended;
import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.opentest4j.TestAbortedException;

/** The fakes do what they say: a C program drives them, {@code src/test/c/fake_test.c}. */
@Timeout(value = 8, unit = TimeUnit.MINUTES)
class FakeTest {
    @TempDir Path scratch = Path.of("");

    private static String run(Map<String, String> environment, Path home, String... arguments) {
        List<String> command = new ArrayList<>();
        command.add(home.resolve("bin").resolve("fake_test").toString());
        command.addAll(List.of(arguments));
        Ended ended = FakeBuild.run(environment, command);
        assertEquals(0, ended.status(), () -> String.join(" ", command) + "\n" + ended.output());
        return ended.output();
    }

    @Test
    void driveBothThroughC() {
        String output = run(Map.of(), FakeBuild.home());
        System.out.println("FakeTest: " + output.strip().replace("\n", "\nFakeTest: "));
        assertTrue(output.contains("tests of the fakes passed"), output);
    }

    /** Ranks as threads only where processes that fork disturb the sanitizer. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"'address,undefined', ''", "thread, -f"})
    void driveBothUnderASanitizer(String sanitizer, String argument) throws IOException {
        String flag = "-fsanitize=" + sanitizer;
        assumeWorks(flag);
        Path home = FakeBuild.home(flag, "-fno-sanitize-recover=undefined", "-g", "-O1");
        String output = argument.isEmpty() ? run(Map.of(), home) : run(Map.of(), home, argument);
        assertFalse(output.contains("WARNING"), output);
    }

    /** A slot for a communicator that is freed before the job writes it: a sanitizer finds that. */
    @Tag("exhaustive")
    @Test
    void writeIntoAFreedSlotIsFound() throws IOException {
        String flag = "-fsanitize=address,undefined";
        assumeWorks(flag);
        Path home = FakeBuild.home(flag, "-fno-sanitize-recover=undefined", "-g", "-O1");
        Ended ended =
                FakeBuild.run(
                        Map.of(),
                        List.of(home.resolve("bin").resolve("fake_test").toString(), "-l"));
        assertNotEquals(0, ended.status(), ended.output());
        assertTrue(ended.output().contains("heap-use-after-free"), ended.output());
        assertTrue(ended.output().contains("write_late"), ended.output());
    }

    private void assumeWorks(String flag) throws IOException {
        String compiler = FakeBuild.compilers().c();
        Path source = scratch.resolve("probe.c");
        Path program = scratch.resolve("probe");
        Files.writeString(source, "int main(void) { return 0; }\n");
        Ended compiled =
                FakeBuild.run(
                        Map.of(),
                        List.of(compiler, flag, source.toString(), "-o", program.toString()));
        Assumptions.assumeTrue(
                compiled.status() == 0, compiler + " has no " + flag + ": " + compiled.output());
        Ended ran = FakeBuild.run(Map.of(), List.of(program.toString()));
        Assumptions.assumeTrue(
                ran.status() == 0, flag + " does not work on this machine: " + ran.output());
    }

    @Test
    void everyBoundFunctionIsThere() {
        String[] names =
                Stream.of(CudaApi.class, NcclApi.class)
                        .flatMap(api -> Arrays.stream(api.getMethods()))
                        .filter(m -> Modifier.isAbstract(m.getModifiers()))
                        .filter(m -> m.getDeclaringClass() != NativeApi.class)
                        .map(Method::getName)
                        .toArray(String[]::new);
        assertTrue(names.length > 150, names.length + " functions");
        String[] arguments =
                Stream.concat(Stream.of("-s"), Stream.of(names)).toArray(String[]::new);
        run(Map.of(), FakeBuild.home(), arguments);
    }

    @Tag("exhaustive")
    @Test
    void anOldLibraryLacksNewFunctions() throws IOException {
        Path old = FakeBuild.old().resolve("libnccl.so.2");
        String bytes = Files.readString(old, StandardCharsets.ISO_8859_1);
        assertTrue(bytes.contains("\0ncclCommSplit\0"));
        assertFalse(bytes.contains("\0ncclAlltoAll\0"));
        assertFalse(bytes.contains("\0ncclParamBind\0"));
    }

    @Test
    void theEnvironmentSteersThem() {
        String output =
                run(
                        Map.of(
                                "JCCL_FAKE_NCCL_VERSION", "2.21.5",
                                "JCCL_FAKE_DEVICES", "3",
                                "JCCL_FAKE_MEMORY", "65536",
                                "JCCL_FAKE_NOOP", "1",
                                "JCCL_FAKE_INJECT", "cudaFree:1:error=719"),
                        FakeBuild.home(),
                        "-v");
        assertEquals(
                "nccl 22105, devices 3, cudaMalloc of 65537 bytes 2, cudaFree 719, noop 0",
                output.strip());
    }

    /** Both are needed: a test is skipped where one is missing, unless it was said to be there. */
    @Test
    void aMissingCompilerIsSaid() throws IOException {
        assertTrue(Files.createFile(scratch.resolve("gcc")).toFile().setExecutable(true));
        String path = scratch.toString();
        TestAbortedException skip =
                assertThrows(
                        TestAbortedException.class,
                        () -> FakeBuild.compilers(Map.of("PATH", path)));
        String reason = String.valueOf(skip.getMessage());
        assertTrue(reason.contains("C++ (CXX, or c++, g++, clang++ on the PATH)"), reason);
        Map<String, String> required = Map.of("PATH", path, "JCCL_TEST_REQUIRE", "mpi,cc");
        AssertionError failure =
                assertThrows(AssertionError.class, () -> FakeBuild.compilers(required));
        assertEquals(reason + ", and JCCL_TEST_REQUIRE names cc", failure.getMessage());
        assertEquals(
                new FakeBuild.Compilers(scratch.resolve("gcc").toString(), "clang++"),
                FakeBuild.compilers(Map.of("PATH", path, "CXX", " clang++ ")));
    }

    @Test
    void folderIsBuiltOnce() {
        Path first = FakeBuild.home();
        assertEquals(first, FakeBuild.home());
        assertTrue(Files.exists(first.resolve("lib64").resolve("libcudart.so.13")));
    }
}

package io.jccl.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Scripts of the repository, next to programs that only pretend to measure. */
class ScriptsTest {
    @TempDir Path folder = Path.of("");

    private record Outcome(int status, String text) {}

    private static Outcome run(Map<String, String> environment, Object... command)
            throws IOException, InterruptedException {
        List<String> words = new ArrayList<>();
        for (Object word : command) {
            words.add(word.toString());
        }
        ProcessBuilder builder = new ProcessBuilder(words).redirectErrorStream(true);
        builder.environment().putAll(environment);
        Process p = builder.start();
        String text = new String(p.getInputStream().readAllBytes(), UTF_8);
        return new Outcome(p.waitFor(), text);
    }

    private Path program(String name, String text) throws IOException {
        Path file = folder.resolve(name);
        Files.createDirectories(file.resolveSibling(""));
        Files.writeString(file, text);
        assertTrue(file.toFile().setExecutable(true));
        return file;
    }

    private Path copy(String from, String to) throws IOException {
        return program(to, Files.readString(Pages.ROOT.resolve(from)));
    }

    private static void assumePython() {
        assumeTrue(
                Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
                        .anyMatch(f -> Files.isExecutable(Path.of(f, "python3"))),
                "no python3 on the PATH");
    }

    /** Blocks of a third or a quarter are rounded, and JCCL prints what is left of a size. */
    @Test
    void peersKeepTheTimesOfRoundedSizes() throws IOException, InterruptedException {
        assumePython();
        Path script = copy("bench/peers/collectives", "bench/peers/collectives");
        program(
                "jccl",
                """
                #!/usr/bin/env python3
                import json, sys
                if "--version" in sys.argv:
                    print("jccl\\nJava")
                if "-J" in sys.argv:
                    value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
                    size, rows = int(value("-b")), []
                    while size <= int(value("-e")):
                        rows.append({"size": size - 4, "out_of_place": {"median": size / 2}})
                        size *= int(value("-f"))
                    with open(value("-J"), "w") as file:
                        json.dump({"results": rows}, file)
                """);
        Outcome python = run(Map.of(), "python3", "-c", "import sys; print(sys.executable)");
        Path alone =
                program("bin/python3", "#!/bin/sh\nexec '" + python.text.strip() + "' \"$@\"\n");
        // On a path without compilers and MPIs.
        Outcome o =
                run(
                        Map.of("PATH", alone.resolveSibling("").toString()),
                        alone,
                        script,
                        "--op=all_gatherv",
                        "--ranks=4",
                        "-r1",
                        "--python=/bin/false",
                        "64",
                        "512",
                        "4096",
                        "4100");
        assertEquals(0, o.status, o.text);
        for (String row : List.of("64 B +32", "512 B +256", "4 KiB +2048", "4100 B +2050")) {
            assertTrue(o.text.matches("(?s).* " + row + "\\.00 .*"), o.text);
        }
    }

    /** The mean of C beside the mean of JCCL. */
    @Test
    void gpuComparesMeans() throws IOException, InterruptedException {
        assumePython();
        Path jccl =
                program(
                        "jccl",
                        """
                        #!/bin/sh
                        if [ "$1" = doctor ]; then
                            echo '{"libraries": [{"name": "nccl", "path": "n"}, {"name": "cudart", "path": "c"}]}'
                            exit
                        fi
                        while [ "$1" != -J ]; do
                            shift
                        done
                        echo '{"results": [{"size": 8, "out_of_place": {"time": 7, "median": 7, "mean": 20}}]}' >"$2"
                        """);
        Path peer = program("peer", "#!/bin/sh\necho 8 10.000\n");
        Outcome o =
                run(
                        Map.of("JCCL", jccl.toString(), "NCCL_PEER", peer.toString()),
                        Pages.ROOT.resolve("bench/peers/gpu"),
                        "-e",
                        "8",
                        "-r",
                        "1");
        assertEquals(0, o.status, o.text);
        assertTrue(o.text.matches("(?s).* 8 +10.00 +20.00 +2.000\n"), o.text);
    }

    /** What runs without the Vector API belongs to the share of its class, in every module. */
    @Test
    void aShareHasThePlainRunsOfItsClassesAlone() throws IOException, InterruptedException {
        assumePython();
        Path share = Pages.ROOT.resolve(".ci/share");
        Outcome all = run(Map.of(), share, "0/1");
        assertEquals(0, all.status, all.text);
        assertTrue(all.text.contains("\n-Djccl.test.plain=ThreadEngineTest,"), all.text);
        assertTrue(all.text.contains("\n-Djccl.test.plain.parallel=MatmulTest,"), all.text);
        Outcome few = run(Map.of(), share, "0/9999");
        assertTrue(few.text.contains("\n-Djccl.test.plain=NoTest"), few.text);
        assertTrue(few.text.contains("\n-Djccl.test.plain.parallel=NoTest"), few.text);
    }

    /** It leaves nothing that the next attempt would refuse, and an older image as it was. */
    @Test
    void anImageThatFailsLeavesTheFolderAsItWas() throws IOException, InterruptedException {
        Path script = copy("bench/dist/jccl-image", "dist/bin/jccl-image");
        program("dist/bin/jccl", "");
        program("dist/lib/one.jar", "");
        program("dist/lib/find-jdk.sh", "find_jdk() { JCCL_JDK=$FAKE_JDK; }\n");
        program(
                "jdk/bin/jlink",
                """
                #!/bin/sh
                mkdir -p "$2/bin"
                [ -z "$FAKE_FAILS" ] || exit 1
                : >"$2/bin/java"
                chmod +x "$2/bin/java"
                """);
        Path image = folder.resolve("images/one");
        Map<String, String> works =
                Map.of("FAKE_JDK", folder.resolve("jdk").toString(), "FAKE_FAILS", "");
        Map<String, String> fails =
                Map.of("FAKE_JDK", folder.resolve("jdk").toString(), "FAKE_FAILS", "1");

        assertEquals(1, run(fails, script, image).status);
        assertEquals(List.of(), names(image.resolveSibling("")));
        Outcome made = run(works, script, image);
        assertEquals(0, made.status, made.text);
        Files.writeString(image.resolve("lib/own"), "");
        assertEquals(1, run(fails, script, image).status);
        assertTrue(Files.exists(image.resolve("lib/own")));
        assertEquals(0, run(works, script, image).status);
        assertEquals(List.of("find-jdk.sh", "one.jar"), names(image.resolve("lib")));
        assertEquals(List.of("bin", "lib", "runtime"), names(image));
        assertEquals(List.of("one"), names(image.resolveSibling("")));
    }

    /** Wherever it is started from, with CDPATH set, in the locale C, without input and errors. */
    @ParameterizedTest
    @CsvSource({"jccl, jccl, .mvn/find-jdk.sh", "bench/dist/jccl, bin/jccl, lib/find-jdk.sh"})
    void theLauncherMindsItsSurroundings(String from, String to, String finder)
            throws IOException, InterruptedException {
        copy(from, "home/" + to);
        copy(".mvn/find-jdk.sh", "home/" + finder);
        fakeJdk("true 3<&0 && echo >&2 && echo \"open $LC_ALL $JCCL_LAUNCHER\"");
        Map<String, String> environment =
                Map.of(
                        "CDPATH",
                        folder.toString(),
                        "JAVA_HOME",
                        folder.resolve("jdk").toString(),
                        "JCCL_NO_BUILD",
                        "1",
                        "LC_ALL",
                        "C");
        if (to.equals("jccl")) {
            Outcome unbuilt =
                    run(environment, "sh", "-c", "exec '" + folder + "/home/jccl' version <&-");
            assertEquals(3, unbuilt.status, unbuilt.text);
            assertEquals(
                    "jccl: is not built, and may not be while JCCL_NO_BUILD is set: unset it\n",
                    unbuilt.text);
            program("home/bench/target/jccl-cli.jar", "");
        }
        Path launcher = folder.toRealPath().resolve("home").resolve(to);
        // Where only standard error is closed, bash opens its script in its place.
        for (String closed : List.of("all_reduce <&- 2>&-", "version 2>&-")) {
            String command = "cd '" + folder + "' && exec home/" + to + " " + closed;
            Outcome o = run(environment, "sh", "-c", command);
            assertEquals("open C.UTF-8 " + launcher + "\n", o.text);
        }
    }

    /** The JVM refuses a second archive of classes, and any beside some flags. */
    @ParameterizedTest
    @CsvSource({
        "'', true",
        "-Xmx64m -XX:+UseZGC, true",
        "-Xmx64m -Xshare:off, false",
        "\"-Xshare:off\", false",
        "-XX:SharedArchiveFile=a.jsa, false",
        "-XX:+AutoCreateSharedArchive, false",
        "-XX:DumpLoadedClassList=a, false",
        "-XX:AOTMode=off, false"
    })
    void theCacheGivesWayToFlagsOnArchives(String flags, boolean used)
            throws IOException, InterruptedException {
        Path launcher = copy("jccl", "home/jccl");
        copy(".mvn/find-jdk.sh", "home/.mvn/find-jdk.sh");
        program("home/bench/target/jccl-cli.jar", "");
        program("home/bench/target/jccl-report.aot", "a cache");
        fakeJdk("echo \"$*\"");
        Map<String, String> environment =
                Map.of(
                        "JAVA_HOME",
                        folder.resolve("jdk").toString(),
                        "JCCL_NO_BUILD",
                        "1",
                        "JAVA_TOOL_OPTIONS",
                        flags);
        Outcome o = run(environment, launcher, "version");
        assertEquals(0, o.status, o.text);
        assertEquals(used, o.text.contains("-XX:AOTCache="), o.text);
    }

    private void fakeJdk(String command) throws IOException {
        program("jdk/release", "JAVA_VERSION=\"25\"\n");
        program("jdk/bin/javac", "");
        program("jdk/bin/java", "#!/bin/sh\n" + command + "\n");
    }

    private static List<String> names(Path folder) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.map(f -> f.getFileName().toString()).sorted().toList();
        }
    }
}

package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Folders of jobs beside what others keep: nothing of theirs is lost, and they see nothing. */
@Isolated("JVM-wide settings")
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class SharedFolderTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final String PROPERTY = "jccl.shm.dir";
    private static final FileAttribute<?> PRIVATE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));

    private final String job = Workers.newJobId();
    private static @TempDir Path kept = Path.of("");
    private @TempDir Path temporary = Path.of("");
    private Path root = Path.of("");

    @BeforeEach
    void use() throws IOException {
        root = Files.createDirectory(temporary.resolve("shm"));
        System.setProperty(PROPERTY, root.toString());
    }

    @AfterEach
    void restore() {
        System.clearProperty(PROPERTY);
    }

    /** The flags of this JVM's ranks name the folder, too. */
    private static Workers world(String job) {
        return new Workers(2, job, List.of(), Map.of());
    }

    /** A job from its start to its end, with ranks that are threads here. */
    private static void hello(String job) {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));
        List<CompletableFuture<Void>> ranks = new ArrayList<>();
        for (int r = 0; r < 2; r++) {
            int rank = r;
            Runnable body =
                    () -> {
                        try (Communicator c = LocalJob.join(job, rank, 2, options);
                                Buffer buffer = c.device().allocate(DataType.INT64, 1)) {
                            buffer.setLong(0, 1 + rank);
                            c.allReduce(buffer, ReduceOp.SUM, c.device().defaultStream());
                            assertEquals(3, buffer.getLong(0));
                        }
                    };
            ranks.add(CompletableFuture.runAsync(body, task -> Thread.ofPlatform().start(task)));
        }
        // Of all: one that failed makes the others wait until their timeout.
        AssertionError failed = new AssertionError("the ranks did not meet");
        for (CompletableFuture<Void> rank : ranks) {
            try {
                rank.join();
            } catch (CompletionException e) {
                failed.addSuppressed(e);
            }
        }
        if (failed.getSuppressed().length > 0) {
            throw failed;
        }
    }

    private static void helloOfProcesses(String job) {
        try (Workers workers = world(job)) {
            workers.startAll(FaultWorker.class, "hello", "60");
            for (Worker worker : workers.all()) {
                worker.await("OK", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
    }

    /** The folder of a job all of whose ranks were killed. */
    private Path killed(String job, String... engine) {
        try (Workers workers =
                engine.length == 0
                        ? world(job)
                        : new Workers(2, job, TestFake.flags(), Map.of("JCCL_ENGINE", engine[0]))) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            workers.all().forEach(w -> w.await("RUNNING", PATIENCE));
            workers.all().forEach(Worker::kill);
            workers.all().forEach(w -> w.join(PATIENCE));
        }
        Path folder = root.resolve("jccl-" + job);
        assertTrue(Files.isDirectory(folder), "a killed job leaves its folder");
        return folder;
    }

    /** The same, copied from that of one job: its files say nothing of whose they are. */
    private Path leftBy(String job) throws IOException {
        Path one = kept.resolve("folder");
        if (!Files.exists(one)) {
            Files.move(killed(job), one);
        }
        Path folder = root.resolve("jccl-" + job);
        Files.copy(one, folder, StandardCopyOption.COPY_ATTRIBUTES);
        try (var files = Files.list(one)) {
            for (Path f : files.toList()) {
                Path copy = folder.resolve(f.getFileName());
                Files.copy(f, copy, StandardCopyOption.COPY_ATTRIBUTES);
            }
        }
        return folder;
    }

    private static Path file(Path file) throws IOException {
        Files.createDirectories(file.getParent());
        return Files.writeString(file, "of " + file);
    }

    /** All files and folders below one with what is in them; links are not followed. */
    private static Map<String, String> contents(Path top) throws IOException {
        Map<String, String> all = new TreeMap<>();
        try (var files = Files.walk(top)) {
            for (Path f : files.toList()) {
                all.put(
                        f.toString(),
                        Files.isSymbolicLink(f)
                                ? "link to " + Files.readSymbolicLink(f)
                                : Files.isDirectory(f)
                                        ? "folder"
                                        : Integer.toString(
                                                java.util.Arrays.hashCode(Files.readAllBytes(f))));
            }
        }
        return all;
    }

    /** Long ago, for the folders below one. */
    private static void age(Path top) throws IOException {
        FileTime hourAgo = FileTime.from(Instant.now().minus(Duration.ofHours(1)));
        try (var files = Files.walk(top)) {
            for (Path f :
                    files.filter(f -> Files.isDirectory(f, LinkOption.NOFOLLOW_LINKS)).toList()) {
                Files.setLastModifiedTime(f, hourAgo);
            }
        }
    }

    @Test
    void startingAJobLeavesWhatIsNotOurs() throws IOException {
        Path elsewhere = temporary.resolve("elsewhere");
        file(elsewhere.resolve("target/results.txt"));
        file(root.resolve("jccl-notes/data.txt"));
        file(root.resolve("jccl-results/step-1/loss.csv"));
        file(root.resolve("jccl-train-4711/rank-0/data"));
        file(root.resolve("jccl-fit-4711/rank-0/heap-0-0"));
        // Names that ours have, and no marker.
        file(root.resolve("jccl-alike/rank-0.lock"));
        Files.setPosixFilePermissions(
                root.resolve("jccl-alike"), PosixFilePermissions.fromString("rwx------"));
        Files.createDirectory(root.resolve("jccl-empty"));
        file(root.resolve("jccl-file"));
        Files.createSymbolicLink(root.resolve("jccl-x"), elsewhere.resolve("target"));
        // A marker, and something of the user's as well.
        file(leftBy(job + "a").resolve("notes.txt"));
        Path folders = leftBy(job + "b");
        file(folders.resolve("store-1/results.txt"));
        file(folders.resolve("sub/results.txt"));
        Files.createSymbolicLink(
                leftBy(job + "c").resolve("heap-0-7"), elsewhere.resolve("target/results.txt"));
        // Ours, but not here.
        Path moved = elsewhere.resolve("job");
        Files.move(leftBy(job + "d"), moved);
        Files.createSymbolicLink(root.resolve("jccl-" + job + "d"), moved);
        age(temporary);
        Map<String, String> before = contents(temporary);

        helloOfProcesses(job);

        assertEquals(before, contents(temporary));
        for (String id : List.of("notes", "results", "alike", "empty", "x", "file")) {
            LocalJob.cleanUp(id);
        }
        for (String id : List.of("a", "b", "c", "d")) {
            LocalJob.cleanUp(job + id);
        }
        assertEquals(before, contents(temporary));
    }

    @ParameterizedTest
    @ValueSource(strings = "host")
    void whatAKilledJobLeftIsRemoved(String engine) throws IOException {
        Path folder = "host".equals(engine) ? leftBy(job + "k") : killed(job + "k", engine);
        hello(job);
        assertTrue(Files.isDirectory(folder), "so young that it may be starting");
        age(root);
        hello(job);
        assertFalse(Files.exists(folder), () -> "left: " + folder);
        assertEquals(Map.of(root.toString(), "folder"), contents(root));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "nccl")
    void whatAKilledJobOfGpusLeftIsRemoved(String engine) throws IOException {
        whatAKilledJobLeftIsRemoved(engine);
    }

    @ParameterizedTest
    @ValueSource(strings = "host")
    void aLauncherRemovesWhatItsKilledJobLeft(String engine) throws IOException {
        Path folder = "host".equals(engine) ? leftBy(job) : killed(job, engine);
        LocalJob.cleanUp(job);
        assertFalse(Files.exists(folder), () -> "left: " + folder);
        assertEquals(Map.of(root.toString(), "folder"), contents(root));
    }

    @Test
    void aLauncherEndsWellWhereTheSharedFolderIsGone() {
        System.setProperty(PROPERTY, temporary.resolve("gone").toString());
        assertThrows(IllegalArgumentException.class, LocalJob::sharedFolder);
        LocalJob.cleanUp(job);
    }

    /** Killed while it split a communicator that a shrink had made, and while it shrank that. */
    @Test
    void controlFilesOfAllCommunicatorsAreRemoved() throws IOException {
        Path folder = leftBy(job);
        for (String name : List.of("ctl-0.s3c2.1.0", "ctl-0.1.0.sffffffff", "ctl-0.s0.part")) {
            Files.createFile(folder.resolve(name));
        }
        LocalJob.cleanUp(job);
        assertEquals(Map.of(root.toString(), "folder"), contents(root));

        Path other = leftBy(job + "b");
        file(other.resolve("ctl-0.save"));
        LocalJob.cleanUp(job + "b");
        assertTrue(Files.exists(other.resolve("ctl-0.save")));
    }

    /** The names that they really have. */
    @Test
    void aShrinkMakesNoUnknownFile() throws Exception {
        List<Communicator> world = InterruptTest.joined(job);
        Thread alone =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                world.getFirst().shrink(List.of(), true);
                            } catch (JcclException e) {
                                // The other rank does not come.
                            }
                        });
        Path folder = root.resolve("jccl-" + job);
        List<Path> files = List.of();
        while (files.stream().noneMatch(f -> f.getFileName().toString().matches("ctl-0\\.s\\w+"))) {
            Thread.sleep(1);
            assertTrue(alone.isAlive(), "it made no file");
            try (var found = Files.list(folder)) {
                files = found.toList();
            }
        }
        // As if both had been killed now.
        Path killed = Files.createDirectory(root.resolve("jccl-" + job + "k"), PRIVATE);
        for (Path f : files.stream().filter(f -> !f.toString().endsWith(".lock")).toList()) {
            Files.copy(f, killed.resolve(f.getFileName()), StandardCopyOption.COPY_ATTRIBUTES);
        }
        LocalJob.cleanUp(job + "k");
        assertFalse(Files.exists(killed), () -> "left: " + killed);
        world.get(1).close();
        alone.join();
        world.getFirst().close();
        assertEquals(Map.of(root.toString(), "folder"), contents(root));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "nccl")
    void aLauncherRemovesWhatItsKilledJobOfGpusLeft(String engine) throws IOException {
        aLauncherRemovesWhatItsKilledJobLeft(engine);
    }

    /** What ranks leave that are killed while they make their job's folder, or delete it. */
    private List<Path> unfinished() throws IOException {
        Path folder = root.resolve("jccl-" + job);
        List<Path> made = new ArrayList<>();
        for (String end : List.of(".new-1", ".new-2f", ".new-3", ".old-a", ".old-b")) {
            Path path = folder.resolveSibling(folder.getFileName() + end);
            if (end.equals(".new-3") || end.equals(".old-b")) {
                Files.move(leftBy(job), path);
            } else {
                Files.createDirectory(path, PRIVATE);
            }
            made.add(path);
        }
        Files.createFile(made.get(1).resolve("gate"));
        return made;
    }

    @Test
    void whatWasKilledWhileItMadeTheFolderIsRemoved() throws IOException {
        unfinished();
        // Not ours, though its name is like one.
        Path stranger = root.resolve("jccl-" + job + ".new-0");
        Files.createDirectory(stranger, PRIVATE);
        file(stranger.resolve("gate"));
        Path other = root.resolve("jccl-" + job + "x.new-0");
        Files.createDirectory(other, PRIVATE);
        Map<String, String> rest = contents(root);
        rest.keySet().removeIf(f -> !f.equals(root.toString()) && !f.contains(".new-0"));

        LocalJob.cleanUp(job);
        assertEquals(rest, contents(root));

        unfinished();
        age(root);
        hello(job);
        rest.remove(other.toString());
        assertEquals(rest, contents(root));
    }

    /** A process that ends writes to its store until the folder is gone, its lock given up. */
    @Test
    void whatIsWrittenWhileTheFolderIsDeletedGoesToo() throws Exception {
        Path folder = leftBy(job);
        Path store = folder.resolve("store-1");
        Files.createDirectory(store, PRIVATE);
        Files.copy(folder.resolve("gate"), store.resolve("gate"));
        CountDownLatch writing = new CountDownLatch(1);
        Thread writer =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                for (int i = 0; ; i++) {
                                    Files.writeString(store.resolve("world%2Fbeat-" + i), "x");
                                    if (i == 200) {
                                        writing.countDown();
                                    }
                                }
                            } catch (IOException e) {
                                // The folder has gone.
                            }
                        });
        writing.await();
        LocalJob.cleanUp(job);
        writer.join();
        assertEquals(Map.of(root.toString(), "folder"), contents(root));
    }

    /**
     * What a process wrote to the store after its marker was deleted, when the remover was killed.
     */
    @Test
    void whatIsLeftOfADeletionIsRemoved() throws IOException {
        Path folder = leftBy(job);
        Path store = folder.resolve("store-1");
        Files.createDirectory(store, PRIVATE);
        Files.writeString(store.resolve("world%2Fleft-2"), "x");
        Path dead = root.resolve(folder.getFileName() + ".old-8acd2810bacf31c6");
        Files.move(folder, dead);
        LocalJob.cleanUp(job);
        assertEquals(Map.of(root.toString(), "folder"), contents(root));
    }

    /** One of them meets the folder under the name that another has given it to delete it. */
    @Tag("exhaustive")
    @Test
    void threadsRemoveWhatAKilledJobLeftAtTheSameTime() throws IOException {
        for (int round = 0; round < 20; round++) {
            Path folder = leftBy(job);
            for (int i = 0; i < 300; i++) {
                Files.createFile(folder.resolve("heap-7-" + i));
            }
            List<CompletableFuture<Void>> removers = new ArrayList<>();
            for (int t = 0; t < 3; t++) {
                removers.add(
                        CompletableFuture.runAsync(
                                () -> LocalJob.cleanUp(job),
                                task -> Thread.ofPlatform().start(task)));
            }
            removers.forEach(CompletableFuture::join);
            assertEquals(Map.of(root.toString(), "folder"), contents(root));
        }
    }

    @Test
    void aLivingJobIsNotRemoved() throws IOException {
        try (Workers workers = world(job)) {
            workers.startAll(FaultWorker.class, "early", "60", "1");
            workers.all().getFirst().await("GOES ON", PATIENCE);
            age(root);
            hello(job + "b");
            LocalJob.cleanUp(job);
            assertTrue(Files.exists(root.resolve("jccl-" + job + "/rank-1.lock")));
        }
    }

    // ---- strangers

    @ParameterizedTest
    @ValueSource(strings = "host")
    void onlyItsUserSeesAJob(String engine) throws IOException {
        List<String> flags = "nccl".equals(engine) ? TestFake.flags() : List.of();
        Map<String, String> environment =
                "nccl".equals(engine) ? Map.of("JCCL_ENGINE", engine) : Map.of();
        try (Workers workers = new Workers(2, job, flags, environment)) {
            Worker first = workers.start(0, FaultWorker.class, "allReduce", "60");
            Path control = root.resolve("jccl-" + job + "/ctl-0");
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (!Files.exists(control) && System.nanoTime() < deadline) {
                Thread.onSpinWait();
            }
            assertPrivate("ctl-0", "card-", "rank-0.lock", "gate");
            workers.start(1, FaultWorker.class, "allReduce", "60");
            first.await("RUNNING", PATIENCE);
            assertPrivate("rank-1.lock", "nccl".equals(engine) ? "store-" : "heap-1-0");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "nccl")
    void onlyItsUserSeesAJobOfGpus(String engine) throws IOException {
        onlyItsUserSeesAJob(engine);
    }

    private void assertPrivate(String... names) throws IOException {
        Path folder = root.resolve("jccl-" + job);
        List<String> seen = new ArrayList<>();
        try (var files = Files.walk(folder)) {
            for (Path f : files.toList()) {
                String mode;
                try {
                    mode = PosixFilePermissions.toString(Files.getPosixFilePermissions(f));
                } catch (java.nio.file.NoSuchFileException e) {
                    continue; // a value of the store that was replaced
                }
                assertEquals(Files.isDirectory(f) ? "rwx------" : "rw-------", mode, f::toString);
                seen.add(folder.relativize(f).toString());
            }
        }
        for (String name : names) {
            assertTrue(seen.stream().anyMatch(f -> f.startsWith(name)), () -> name + ": " + seen);
        }
    }

    /** Joins where something is in the folder's place; returns what it is told. */
    private String refused(String... words) throws IOException {
        Path folder = root.resolve("jccl-" + job);
        Map<String, String> before = contents(temporary);
        JcclException error =
                assertThrows(
                        JcclException.class,
                        () ->
                                LocalJob.join(
                                                job,
                                                0,
                                                2,
                                                CommunicatorOptions.DEFAULT.withTimeout(
                                                        Duration.ofSeconds(3)))
                                        .close());
        String message = String.valueOf(error.getMessage());
        List<String> all = new ArrayList<>(List.of(words));
        all.addAll(List.of(folder.toString(), "JCCL_JOB_ID", "JCCL_SHM_DIR", "remove"));
        for (String word : all) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
        assertEquals(before, contents(temporary), "nothing is changed there");
        return message;
    }

    private Path folder(String mode) throws IOException {
        Path folder = Files.createDirectory(root.resolve("jccl-" + job));
        return Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString(mode));
    }

    @Test
    void aFolderThatOthersCanReadIsRefused() throws IOException {
        leftBy(job);
        Path folder = root.resolve("jccl-" + job);
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-x---"));
        String user = Files.getOwner(folder).getName();
        refused("user " + user + " with mode rwxr-x---", "expected", "rwx------");
    }

    @Test
    void aFolderOfAnotherUserIsRefused() throws IOException {
        leftBy(job);
        Path folder = root.resolve("jccl-" + job);
        assumeTrue(
                "root".equals(Files.getOwner(folder).getName()),
                "only root can give a folder to another user");
        Files.setOwner(
                folder,
                FileSystems.getDefault()
                        .getUserPrincipalLookupService()
                        .lookupPrincipalByName("nobody"));
        refused("user nobody with mode rwx------", "expected a folder of user root");
        age(root);
        hello(job + "b");
        LocalJob.cleanUp(job);
        assertTrue(Files.exists(folder), "the other user's folder stays");
    }

    @Test
    void aFolderWithoutMarkerIsRefused() throws IOException {
        Path folder = folder("rwx------");
        refused("'gate'", "something else made it");
        file(folder.resolve("gate"));
        refused("'gate'", "something else made it");
    }

    @Test
    void aMarkerOfAnotherVersionIsRefused() throws IOException {
        Path gate = leftBy(job).resolve("gate");
        Files.writeString(gate, Files.readString(gate).replaceAll("[0-9]", "0"));
        refused("'gate'", "this version of JCCL");
    }

    @Test
    void aLinkOrAFileInTheFoldersPlaceIsRefused() throws IOException {
        Path target = temporary.resolve("target");
        Files.move(leftBy(job), target);
        Path folder = Files.createSymbolicLink(root.resolve("jccl-" + job), target);
        refused("symbolic link");
        Files.delete(folder);
        file(folder);
        refused("it is a file of user");
    }
}

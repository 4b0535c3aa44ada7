package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.jccl.CommunicatorOptions;
import io.jccl.LocalJob;
import io.jccl.offload.Budgets;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** A command's folder for tier NVME takes nothing of the user's with it. */
@Isolated("JVM-wide settings")
class ScratchTest {
    private @TempDir Path temporary = Path.of("");

    private static void store(Path folder) throws IOException {
        NvmeStore.open(
                        Files.createDirectories(folder),
                        new Budgets(Map.of()),
                        NvmeOptions.DEFAULT.withScratch(true))
                .close();
    }

    @Test
    void whatRanksMakeIsRemoved() throws IOException {
        try (Scratch scratch = Scratch.in(temporary, "jccl-train-")) {
            store(scratch.folder().resolve("rank-0"));
            store(scratch.folder().resolve("state-1/rank-11"));
            // What a store that was ended while it opened its file leaves.
            Files.writeString(
                    scratch.folder()
                            .resolve("rank-0/scratch-" + ProcessHandle.current().pid() + "-1"),
                    "data");
        }
        try (var left = Files.list(temporary)) {
            assertEquals(0, left.count());
        }
    }

    /** A run that starts in the same folder takes it for no left-over of an earlier one. */
    @Test
    void aJobThatStartsBesideItLeavesIt() throws Exception {
        System.setProperty("jccl.shm.dir", temporary.toString());
        try (Scratch scratch = Scratch.in(temporary, "jccl-train-")) {
            Path data = Files.createDirectories(scratch.folder().resolve("state/rank-0"));
            Path file = Files.writeString(data.resolve("data"), "state");
            FileTime hourAgo = FileTime.from(Instant.now().minus(Duration.ofHours(1)));
            Files.setLastModifiedTime(scratch.folder(), hourAgo);
            String id = LocalJob.newId();
            CommunicatorOptions options =
                    CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));
            CompletableFuture<Void> other =
                    CompletableFuture.runAsync(() -> LocalJob.join(id, 1, 2, options).close());
            LocalJob.join(id, 0, 2, options).close();
            other.get(60, TimeUnit.SECONDS);
            assertEquals("state", Files.readString(file));
            Files.delete(file);
        } finally {
            System.clearProperty("jccl.shm.dir");
        }
        try (var left = Files.list(temporary)) {
            assertEquals(0, left.count());
        }
    }

    @Test
    void whatTheUserPutThereStays() throws IOException {
        Path folder;
        Path target = Files.createDirectory(temporary.resolve("target"));
        Path results = Files.writeString(target.resolve("scratch-1-1"), "results");
        try (Scratch scratch = Scratch.in(temporary, "jccl-fit-")) {
            folder = scratch.folder();
            store(folder.resolve("rank-0"));
            Files.writeString(folder.resolve("notes.txt"), "notes");
            Files.createDirectory(folder.resolve("mine"));
            Files.writeString(folder.resolve("mine/data"), "data");
            Files.createSymbolicLink(folder.resolve("rank-1"), target);
        }
        assertEquals("notes", Files.readString(folder.resolve("notes.txt")));
        assertEquals("data", Files.readString(folder.resolve("mine/data")));
        assertEquals("results", Files.readString(results));
        assertEquals(target, Files.readSymbolicLink(folder.resolve("rank-1")));
        assertFalse(Files.exists(folder.resolve("rank-0")), "a rank's own folder");
    }
}

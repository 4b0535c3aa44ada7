package io.jccl.train;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.cli.shell.Text;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.FileReads;
import io.jccl.internal.FolderLock;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Checkpoints of a run in a folder: {@code step-N} with a folder for each part of the model and
 * {@code step.json}, written once all ranks have written their files; and {@code latest.json},
 * which names the newest one. A rank may therefore die at any time. Two checkpoints are kept; if
 * the newest is damaged, all ranks fall back to the other one.
 */
final class Checkpoints implements AutoCloseable {
    static final String LATEST = "latest.json";
    private static final String WHOLE = "step.json";

    /** In {@link #LATEST}: whether the step has {@link #WHOLE}. */
    private static final String MARKED = "marked";

    /** In {@link #WHOLE}: with which compression and on how many ranks state was carried. */
    private static final String CARRIED = "carried";

    private static final String STEP = "step-";
    private static final String MODEL = "model";
    private static final String SHARDED = "sharded";

    /** Names of folders and files in a step's folder, which are removed with it. */
    private static final Pattern PART = Pattern.compile("pp\\d+(-ep\\d+)?-tp\\d+(-experts)?");

    private static final Pattern INNER = Pattern.compile("step-\\d{12}");
    private static final Pattern FILE = Pattern.compile(".+\\.(state|shard)(\\.part)?");

    /** Bytes of a rank's message when ranks compare what they could load. */
    private static final int TEXT = 1024;

    private static final int SLOT = 3 * Integer.BYTES + TEXT;

    private final Path folder;
    private final ObjectNode description;
    private final String carried;
    private @Nullable FolderLock lock;

    Checkpoints(Path folder, Corpus corpus, RunSettings s) {
        this.folder = folder;
        GptShape shape = s.shape();
        Techniques t = s.techniques();
        description = new ObjectMapper().createObjectNode();
        description.put(MODEL, shape.architecture().text());
        description.put("layers", shape.layers());
        description.put("hidden", shape.hidden());
        description.put("heads", shape.heads());
        description.put("context", shape.context());
        description.put("experts", shape.experts());
        description.put("router", shape.experts() == 0 ? "none" : shape.routing().label());
        description.put("shared_expert", shape.sharedExpert());
        description.put("mixture", shape.mixture().text());
        description.put("text", Long.toHexString(corpus.tokens().checksum()));
        description.put("batch", s.batch());
        description.put("seed", s.seed());
        description.put("optimizer", s.optimizer().label());
        Evaluation e = s.evaluation();
        description.put("held_out", e.every() == 0 ? "" : String.valueOf(e.share()));
        description.put("recipe", s.recipe().text(s.steps()));
        description.put("tp", t.tensor());
        description.put("pp", t.pipeline());
        description.put("ep", t.expert());
        // Files of whole parameters and of shards differ, in the parameters too.
        description.put(SHARDED, t.sharded());
        // Of a run that differs here, or has no such entry, ranks begin with nothing carried.
        carried = t.compressLabel() + " on " + t.data();
    }

    /** Saves in a folder. */
    @FunctionalInterface
    interface Writer {
        void to(Path folder) throws IOException;
    }

    /** Loads from a folder. */
    @FunctionalInterface
    interface Reader {
        /**
         * Loads this rank's files.
         *
         * @param carried whether they include all that compression carries
         */
        void from(Path folder, boolean carried) throws IOException;
    }

    /**
     * Saves. All ranks call it.
     *
     * @param world all ranks
     * @param step steps taken
     * @param work writes this rank's files to a folder
     */
    void save(Communicator world, int step, Writer work) throws IOException {
        Path target = folder.resolve(STEP + step);
        try {
            save(world, step, target, work);
        } catch (IOException e) {
            throw new IOException(
                    "step %s cannot be saved: %s; solve this, such as by freeing space, and %s"
                            .formatted(
                                    step,
                                    Text.message(e),
                                    Files.exists(folder.resolve(LATEST))
                                            ? "go on with --resume"
                                            : "start again: no step before it is saved"),
                    e);
        }
    }

    private void save(Communicator world, int step, Path target, Writer work) throws IOException {
        if (world.rank() == 0 && Files.exists(target)) {
            // Left by an interrupted or diverged run: a mixture would look complete.
            remove(target);
        }
        meet(world);
        Files.createDirectories(target);
        work.to(target);
        // A rank that cannot write does not get here, and the others notice.
        meet(world);
        if (world.rank() == 0) {
            ObjectNode latest = description.deepCopy();
            latest.put("step", step);
            latest.put(MARKED, true);
            latest.put(CARRIED, carried);
            String text = latest.toPrettyString() + "\n";
            write(target.resolve(WHOLE), text);
            write(folder.resolve(LATEST), text);
            removeOld(step);
        }
    }

    /**
     * Keeps other runs out until this is closed: their files would mix. Rank 0 calls it.
     *
     * @throws IOException if another run uses the folder
     */
    void lock() throws IOException {
        try {
            lock = FolderLock.take(Files.createDirectories(folder));
        } catch (FolderLock.HeldException e) {
            throw new IOException(
                    "another run (process %s) saves in %s; give another folder, or end it first"
                            .formatted(e.process(), folder),
                    e);
        } catch (FolderLock.ForeignException | FileSystemException e) {
            throw e;
        } catch (IOException e) {
            // Some network file systems have no locks.
        }
    }

    @Override
    public void close() {
        if (lock != null) {
            lock.close();
        }
    }

    /** Waits for all ranks. */
    private static void meet(Communicator world) {
        world.barrier(world.device().defaultStream());
        world.device().defaultStream().synchronize();
    }

    /** Writes text to a file, which gets its name once it is complete. */
    static void write(Path file, String text) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        AtomicFile.write(file, c -> AtomicFile.writeAll(c, bytes));
    }

    /**
     * Removes all but the newest checkpoint and the complete one before it. Still newer ones belong
     * to a diverged run: they are replaced when this run reaches them.
     */
    private void removeOld(int newest) throws IOException {
        boolean kept = false;
        for (int old : steps(folder, newest)) {
            if (!kept && Files.exists(marker(folder, old))) {
                kept = true;
            } else {
                remove(folder.resolve(STEP + old));
            }
        }
    }

    /** Steps before the given one that have a folder, newest first. */
    private static List<Integer> steps(Path folder, int before) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.map(Checkpoints::number)
                    .filter(n -> n >= 0 && n < before)
                    .sorted(Comparator.reverseOrder())
                    .toList();
        }
    }

    /** Removes the files that {@link #save} wrote to a step's folder, and no others. */
    private static void remove(Path step) throws IOException {
        if (!isFolder(step)) {
            return;
        }
        // First, so that an interrupted removal does not look complete.
        Files.deleteIfExists(step.resolve(WHOLE));
        Files.deleteIfExists(step.resolve(WHOLE + ".part"));
        for (Path part : named(step, PART)) {
            for (Path inner : named(part, INNER)) {
                removeFiles(inner);
            }
            removeFiles(part);
        }
        removeIfEmpty(step);
    }

    private static void removeFiles(Path in) throws IOException {
        if (isFolder(in)) {
            for (Path file : named(in, FILE)) {
                if (Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)) {
                    Files.delete(file);
                }
            }
            removeIfEmpty(in);
        }
    }

    private static boolean isFolder(Path p) {
        return Files.isDirectory(p, LinkOption.NOFOLLOW_LINKS);
    }

    private static List<Path> named(Path in, Pattern name) throws IOException {
        if (!isFolder(in)) {
            return List.of();
        }
        try (Stream<Path> all = Files.list(in)) {
            return all.filter(p -> name.matcher(p.getFileName().toString()).matches()).toList();
        }
    }

    private static void removeIfEmpty(Path in) throws IOException {
        try {
            Files.delete(in);
        } catch (DirectoryNotEmptyException e) {
            // The folder contains files of the user and is kept.
        }
    }

    private static int number(Path p) {
        String name = p.getFileName().toString();
        try {
            return name.startsWith(STEP) ? Integer.parseInt(name.substring(STEP.length())) : -1;
        } catch (NumberFormatException e) {
            return -1;
        }
    }

    /**
     * Loads a step. All ranks call it, and load the same one.
     *
     * @param world all ranks
     * @param wanted the step, or {@link RunSettings#NEWEST} for the newest complete one
     * @param work reads this rank's files
     * @param warn called on rank 0 with one line on which steps were skipped and why
     * @return the number of steps taken before
     */
    int load(Communicator world, int wanted, Reader work, Consumer<String> warn)
            throws IOException {
        boolean newest = wanted == RunSettings.NEWEST;
        List<String> faults = new ArrayList<>();
        for (int step : newest ? newestFirst() : List.of(wanted)) {
            String fault = attempt(world, step, work);
            if (fault.isEmpty()) {
                if (!faults.isEmpty() && world.rank() == 0) {
                    warn.accept(String.join("; ", faults) + "; going on from step " + step);
                }
                return step;
            }
            faults.add("step " + step + " cannot be loaded: " + fault);
        }
        throw new IOException(
                ("nothing was loaded from %s: %s. Bring damaged files back from a copy%s, or start"
                                + " again without --resume")
                        .formatted(
                                folder,
                                String.join("; ", faults),
                                newest ? "" : others(folder, wanted)));
    }

    /**
     * Empty if all ranks have loaded the step, otherwise the message of the first rank that has
     * not.
     */
    private String attempt(Communicator world, int step, Reader work) {
        // Per rank: the step, whether it failed on its own, and its message.
        int failed = 0;
        String text = "";
        try {
            JsonNode run = checkWhole(step);
            work.from(folder.resolve(STEP + step), run.path(CARRIED).asText("").equals(carried));
        } catch (IOException e) {
            failed = 2;
            text = Text.message(e);
        } catch (RuntimeException e) {
            // Usually the failure of another rank.
            failed = 1;
            text = String.valueOf(e.getMessage());
        }
        try (Buffer all = world.device().allocate(DataType.UINT8, (long) world.size() * SLOT)) {
            byte[] said = text.getBytes(StandardCharsets.UTF_8);
            MemorySegment memory = MemorySegment.ofArray(new byte[Math.toIntExact(all.count())]);
            ByteBuffer slots = memory.asByteBuffer();
            slots.position(world.rank() * SLOT)
                    .putInt(step)
                    .putInt(failed)
                    .putInt(Math.min(said.length, TEXT))
                    .put(said, 0, Math.min(said.length, TEXT));
            all.copyFrom(memory);
            world.allGather(all, world.device().defaultStream());
            // After the collective, on the same stream.
            all.copyTo(memory);
            int worst = 0;
            for (int r = 0; r < world.size(); r++) {
                slots.position(r * SLOT);
                int other = slots.getInt();
                if (other != step) {
                    throw new JcclException(
                            ("rank %s finds step %s in %s, rank %s step %s; give all ranks one"
                                            + " folder")
                                    .formatted(r, other, folder, world.rank(), step));
                }
                int how = slots.getInt();
                if (how > worst) {
                    worst = how;
                    byte[] bytes = new byte[slots.getInt()];
                    slots.get(bytes);
                    text = new String(bytes, StandardCharsets.UTF_8);
                }
            }
            return worst == 0 ? "" : text;
        }
    }

    /**
     * Checks that a folder has a newest checkpoint.
     *
     * @throws IllegalArgumentException if not; the message names the steps that are there
     */
    static void checkSaved(Path folder) throws IOException {
        if (!Files.exists(folder.resolve(LATEST))) {
            throw new IllegalArgumentException(
                    ("there is no checkpoint in %s: %s is not there; give the folder of an earlier"
                                    + " run%s, or start without --resume")
                            .formatted(folder, LATEST, others(folder, -1)));
        }
    }

    /** The step that {@link #LATEST} names, then older complete ones. */
    private List<Integer> newestFirst() throws IOException {
        Path file = folder.resolve(LATEST);
        JsonNode latest = read(file);
        int step = latest.path("step").asInt(-1);
        if (step < 0) {
            throw damaged(file, "it has no step");
        }
        String difference = difference(file, latest);
        if (!difference.isEmpty()) {
            throw new IOException(difference + ", or start again without --resume");
        }
        List<Integer> all = new ArrayList<>(List.of(step));
        all.addAll(whole(folder, step));
        return all;
    }

    /** Complete steps before the given one, newest first. */
    private static List<Integer> whole(Path folder, int before) throws IOException {
        return steps(folder, before).stream().filter(s -> Files.exists(marker(folder, s))).toList();
    }

    private static Path marker(Path folder, int step) {
        return folder.resolve(STEP + step).resolve(WHOLE);
    }

    /** The description of a step; fails if it is missing, of another run, or incomplete. */
    private JsonNode checkWhole(int step) throws IOException {
        Path marker = marker(folder, step);
        if (!isFolder(folder.resolve(STEP + step))) {
            throw new NoSuchFileException(folder.resolve(STEP + step).toString());
        }
        if (Files.exists(marker)) {
            JsonNode run = read(marker);
            String difference = difference(marker, run);
            if (!difference.isEmpty()) {
                throw new IOException(difference);
            }
            return run;
        }
        Path latest = folder.resolve(LATEST);
        JsonNode named = Files.exists(latest) ? read(latest) : MissingNode.getInstance();
        // Earlier versions had no marker.
        if (named.path(MARKED).asBoolean() || named.path("step").asInt(-1) != step) {
            throw new IOException(marker + " is not there, so not all ranks had saved this step");
        }
        return named;
    }

    private JsonNode read(Path file) throws IOException {
        try {
            return new ObjectMapper().readTree(file.toFile());
        } catch (JsonProcessingException e) {
            throw damaged(file, e.getOriginalMessage());
        } catch (IOException e) {
            throw FileReads.named(file, e);
        }
    }

    private IOException damaged(Path file, String what) throws IOException {
        return new IOException(
                "%s is damaged: %s; bring it back from a copy%s, or start without --resume"
                        .formatted(file, what, others(folder, -1)));
    }

    /** Advice to resume from another step; empty if there is none. */
    private static String others(Path folder, int except) throws IOException {
        List<String> others =
                whole(folder, Integer.MAX_VALUE).stream()
                        .filter(s -> s != except)
                        .map(s -> "--resume=" + s)
                        .toList();
        return others.isEmpty()
                ? ""
                : ", resume from a certain step (" + String.join(" or ", others) + ")";
    }

    /** What a run had that this one has not; empty if nothing. */
    private String difference(Path file, JsonNode run) {
        for (String name : (Iterable<String>) description::fieldNames) {
            String here = description.get(name).asText();
            // Earlier versions had one kind of model, and did not record it.
            String there = run.path(name).asText(name.equals(MODEL) ? "jccl" : "");
            if (!here.equals(there)) {
                return "%s is of a run with %s %s, this one has %s; resume with the same"
                        .formatted(file, setting(name), orNone(there), orNone(here));
            }
        }
        return "";
    }

    private static String setting(String name) {
        return name.equals(SHARDED) ? "sharded state (--zero, --bf16, --fp16 or --offload)" : name;
    }

    private static String orNone(String value) {
        return value.isEmpty() ? "none" : value;
    }
}

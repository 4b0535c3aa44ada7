package io.jccl.bench.train;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.CRC32C;

/**
 * Checkpoints of a run in a folder: {@code step-N} with a folder for each part of the model, and
 * {@code latest.json}, which names the newest that is whole. It is replaced only once all ranks
 * have written theirs, so that a rank may die at any time. The two newest are kept.
 */
final class Checkpoints {
    private static final String LATEST = "latest.json";
    private static final String STEP = "step-";
    private static final int KEPT = 2;

    private final Path folder;
    private final ObjectNode description;

    Checkpoints(Path folder, Corpus corpus, RunSettings s) {
        this.folder = folder;
        GptShape shape = s.shape();
        Techniques t = s.techniques();
        CRC32C text = new CRC32C();
        text.update(corpus.tokens());
        description = new ObjectMapper().createObjectNode();
        description.put("layers", shape.layers());
        description.put("hidden", shape.hidden());
        description.put("heads", shape.heads());
        description.put("context", shape.context());
        description.put("experts", shape.experts());
        description.put("text", Long.toHexString(text.getValue()));
        description.put("batch", s.batch());
        description.put("seed", s.seed());
        description.put("optimizer", s.optimizer().label());
        description.put("tp", t.tensor());
        description.put("pp", t.pipeline());
        description.put("ep", t.expert());
        // Files of whole parameters and of shards differ, and so do the parameters they hold.
        description.put("sharded", t.sharded());
    }

    /** What saves or loads in a folder. */
    @FunctionalInterface
    interface Work {
        void in(Path folder) throws IOException;
    }

    /**
     * Saves. All ranks call it.
     *
     * @param world all ranks
     * @param step steps taken
     * @param work writes this rank's files to the folder it is given
     */
    void save(Communicator world, int step, Work work) throws IOException {
        Path target = folder.resolve(STEP + step);
        Files.createDirectories(target);
        work.in(target);
        // A rank that cannot write does not come here, and the others hear of it.
        world.barrier(world.device().defaultStream());
        if (world.rank() == 0) {
            ObjectNode latest = description.deepCopy();
            latest.put("step", step);
            write(folder.resolve(LATEST), latest.toPrettyString() + "\n");
            removeOld(step);
        }
    }

    private static void write(Path file, String text) throws IOException {
        Path part = file.resolveSibling(file.getFileName() + ".part");
        try (FileChannel c =
                FileChannel.open(
                        part,
                        StandardOpenOption.CREATE,
                        StandardOpenOption.TRUNCATE_EXISTING,
                        StandardOpenOption.WRITE)) {
            ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
            while (bytes.hasRemaining()) {
                c.write(bytes);
            }
            c.force(true);
        }
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private void removeOld(int newest) throws IOException {
        List<Path> old;
        try (Stream<Path> all = Files.list(folder)) {
            old =
                    all.filter(p -> number(p) >= 0 && number(p) != newest)
                            .sorted(Comparator.comparingInt(Checkpoints::number).reversed())
                            .skip(KEPT - 1)
                            .toList();
        }
        for (Path p : old) {
            try (Stream<Path> all = Files.walk(p)) {
                for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
                    Files.deleteIfExists(each);
                }
            }
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
     * Loads the newest. All ranks call it.
     *
     * @param world all ranks
     * @param work reads this rank's files
     * @return the steps that were taken
     */
    int load(Communicator world, Work work) throws IOException {
        Path file = folder.resolve(LATEST);
        if (!Files.exists(file)) {
            throw new IOException(
                    "there is no checkpoint in " + folder + ": " + LATEST + " is not there");
        }
        JsonNode latest;
        try {
            latest = new ObjectMapper().readTree(file.toFile());
        } catch (JsonProcessingException e) {
            throw new IOException(file + " is damaged: " + e.getOriginalMessage(), e);
        }
        for (String name : (Iterable<String>) description::fieldNames) {
            String here = description.get(name).asText();
            String there = latest.path(name).asText();
            if (!here.equals(there)) {
                throw new IOException(
                        file
                                + " is of a run with "
                                + name
                                + " "
                                + there
                                + ", this one has "
                                + here
                                + "; resume with the same, or start anew without --resume");
            }
        }
        int step = latest.path("step").asInt(-1);
        if (step < 0) {
            throw new IOException(file + " is damaged: it has no step");
        }
        work.in(folder.resolve(STEP + step));
        world.barrier(world.device().defaultStream());
        return step;
    }
}

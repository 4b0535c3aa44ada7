package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.weights.Safetensors;
import io.jccl.offload.weights.SafetensorsWriter;
import io.jccl.offload.weights.WeightTensor;
import io.jccl.offload.weights.WeightType;
import io.jccl.train.GptShape.Weight;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A model in safetensors files: whole tensors by name, whatever the layout of the ranks that write
 * or read them. A folder has {@code model.safetensors} with the parameters and {@code
 * optimizer.safetensors} with the moments, either as one file or as several with an index. GPT-2
 * and Llama have the names and shapes of Hugging Face's transformers, and {@code config.json}.
 */
final class WeightFiles {
    static final String MODEL = "model.safetensors";
    static final String OPTIMIZER = "optimizer.safetensors";

    private static final String STEPS = "jccl.steps";
    private static final String UPDATES = "jccl.updates";
    private static final String SCALE = "jccl.loss-scale";
    private static final String GOOD = "jccl.good-steps";
    private static final String RULE = "jccl.optimizer";
    private static final String ALPHABET = "jccl.alphabet";
    private static final String HEADS = "jccl.heads";

    private final GptShape shape;
    private final Part part;
    private final Map<String, String> expected = new LinkedHashMap<>();
    private final String rule;

    WeightFiles(RunSettings settings, Corpus corpus, Part part) {
        this.shape = settings.shape();
        this.part = part;
        this.rule = settings.optimizer().label();
        expected.put(ALPHABET, corpus.vocabulary().id());
        expected.put(HEADS, Integer.toString(shape.heads()));
    }

    private List<FileTensor> tensors(Part.Layer layer, Weight w, int state, String prefix) {
        String suffix = state == 0 ? "" : ".moment" + (state - 1);
        return FileTensor.of(shape.architecture(), prefix, layer, w, suffix);
    }

    /** The prefix of GPT-2's names in a file. */
    private static String prefix(Safetensors in) {
        boolean has = in.names().stream().anyMatch(n -> n.startsWith(FileTensor.PREFIX));
        return has ? FileTensor.PREFIX : "";
    }

    // Loading.

    /**
     * Sets parameters and, if a folder has them, moments. All ranks call it; each reads its part,
     * after all ranks have checked the whole model.
     *
     * @param from a folder, or a file or index with parameters alone
     * @param experts the store of experts; null without
     * @return the steps that were taken; 0 without moments
     * @throws IOException if a tensor is missing, or of another shape or type; the message names it
     */
    int load(Path from, ParameterStore store, @Nullable ParameterStore experts) throws IOException {
        boolean folder = Files.isDirectory(from);
        boolean moments = folder && has(from, OPTIMIZER);
        try (Safetensors model = folder ? Safetensors.open(from, MODEL) : Safetensors.open(from);
                @Nullable Safetensors state = moments ? Safetensors.open(from, OPTIMIZER) : null) {
            check(from, model, 0);
            for (int k = 1; state != null && k < store.states(); k++) {
                check(from, state, k);
            }
            int steps = state == null ? 0 : steps(from, state);
            fill(model, state, steps, store, part.layers());
            if (experts != null) {
                fill(model, state, steps, experts, part.expertLayers());
            }
            return steps;
        } catch (NoSuchFileException e) {
            throw new IOException(
                    ("%s is missing, but the index in %s names it: the --save did not finish, or"
                                    + " not all files were copied")
                            .formatted(e.getFile(), from),
                    e);
        }
    }

    static boolean has(Path folder, String name) {
        return Files.exists(folder.resolve(name))
                || Files.exists(folder.resolve(name + Safetensors.INDEX));
    }

    /**
     * Checks the whole model, not only this rank's part, so that all ranks fail in the same way.
     */
    private void check(Path from, Safetensors in, int state) throws IOException {
        Part whole = new Part(shape, 0, 1, 0, shape.layers(), 0, shape.experts());
        List<Part.Layer> layers = new ArrayList<>(whole.layers());
        layers.addAll(whole.expertLayers());
        for (Part.Layer l : layers) {
            for (Weight w : l.weights()) {
                for (FileTensor t : tensors(l, w, state, prefix(in))) {
                    in.expect(t.name(), t.shape());
                }
            }
        }
        for (Map.Entry<String, String> e : expected.entrySet()) {
            String there = in.metadata().getOrDefault(e.getKey(), e.getValue());
            if (!there.equals(e.getValue())) {
                throw new IOException(
                        ("%s is of a model with %s '%s', this one has '%s'; give the same text and"
                                        + " --heads")
                                .formatted(from, e.getKey(), there, e.getValue()));
            }
        }
    }

    private int steps(Path from, Safetensors state) throws IOException {
        String saved = state.metadata().getOrDefault(RULE, "none");
        if (!saved.equals(rule)) {
            throw new IOException(
                    ("%s has the optimizer state of %s, this run uses %s; give --optimizer %s, or"
                                    + " load %s in it for the parameters alone")
                            .formatted(from, saved, rule, saved, MODEL));
        }
        String steps = state.metadata().getOrDefault(STEPS, "");
        if (!steps.matches("\\d{1,9}")) {
            throw new IOException(
                    "%s: %s has %s '%s', expected a number of steps; save it again"
                            .formatted(from, OPTIMIZER, STEPS, steps));
        }
        return Integer.parseInt(steps);
    }

    private void fill(
            Safetensors model,
            @Nullable Safetensors state,
            int steps,
            ParameterStore store,
            List<Part.Layer> layers) {
        Map<String, String> saved = state == null ? Map.of() : state.metadata();
        LossScale scale = store.lossScale();
        if (scale != null && saved.containsKey(SCALE)) {
            scale.restore(number(saved, SCALE, 1), (int) number(saved, GOOD, 0));
        }
        store.restore(
                (long) number(saved, UPDATES, steps),
                (k, layer, weight, values) -> {
                    @Nullable Safetensors in = k == 0 ? model : state;
                    if (in != null) {
                        Part.Layer l = layers.get(layer);
                        Weight w = l.weights().get(weight);
                        for (FileTensor t : tensors(l, w, k, prefix(in))) {
                            read(in, t, w, values);
                        }
                    }
                });
    }

    private static double number(Map<String, String> saved, String name, double otherwise) {
        String text = saved.getOrDefault(name, Double.toString(otherwise));
        try {
            return Double.parseDouble(text);
        } catch (NumberFormatException e) {
            throw new JcclException(
                    OPTIMIZER + " has " + name + " '" + text + "', expected a number", e);
        }
    }

    /** Reads the rows or columns that this rank has of a matrix. */
    private void read(Safetensors in, FileTensor t, Weight w, Buffer values) {
        try {
            if (t.transposed()) {
                readTurned(in, t, w, values);
            } else {
                long run = w.run(part.tensorRanks());
                for (long i = 0; i < values.count(); i += run) {
                    long from = w.index(i, part.tensorRank(), part.tensorRanks());
                    in.read(t.name(), from, values.slice(i, run));
                }
            }
            checkFinite(values.asSegment());
        } catch (IOException e) {
            throw new JcclException("tensor " + t.name() + " cannot be read: " + e.getMessage(), e);
        }
    }

    /** With one value that is not finite, the first step fails on all of them. */
    private static void checkFinite(MemorySegment values) throws IOException {
        for (long at = 0; at < values.byteSize(); at += Float.BYTES) {
            float value = values.get(JAVA_FLOAT_UNALIGNED, at);
            if (!Float.isFinite(value)) {
                throw new IOException(
                        "it has the value " + value + ", expected finite numbers; save it again");
            }
        }
    }

    /** Reads a column of this rank at a time, each of which is contiguous in the file. */
    private void readTurned(Safetensors in, FileTensor t, Weight w, Buffer values)
            throws IOException {
        int parts = part.tensorRanks();
        int width = w.columns() / (w.split() == GptShape.Split.COLUMNS ? parts : 1);
        float[] column = new float[Math.toIntExact(values.count() / width)];
        Buffer to = Buffer.wrap(MemorySegment.ofArray(column), DataType.FLOAT32);
        MemorySegment memory = values.asSegment();
        for (int c = 0; c < width; c++) {
            long index = w.index(c, part.tensorRank(), parts);
            long there = index % w.columns() - t.first();
            if (there >= 0 && there < t.columns()) {
                in.read(t.name(), there * w.rows() + index / w.columns(), to);
                for (int r = 0; r < column.length; r++) {
                    memory.setAtIndex(JAVA_FLOAT_UNALIGNED, (long) r * width + c, column[r]);
                }
            }
        }
    }

    // Saving.

    /** The part of the model that a rank has, and the ranks that split its matrices. */
    record Seat(Communicator tensor, boolean dense, boolean experts, int file, int files) {}

    /**
     * Writes whole tensors. All ranks call it, the first replica of each part writes; rank 0 writes
     * the index when all files are there.
     *
     * @param folder new or empty
     */
    void save(
            Communicator world,
            Path folder,
            int step,
            Seat seat,
            ParameterStore store,
            @Nullable ParameterStore experts)
            throws IOException {
        Files.createDirectories(folder);
        if (world.rank() == 0) {
            ModelConfig.write(folder, shape);
        }
        // The model comes last, so that a folder without it was not completed.
        write(world, folder, OPTIMIZER, step, seat, 1, store, experts);
        write(world, folder, MODEL, step, seat, 0, store, experts);
    }

    private void write(
            Communicator world,
            Path folder,
            String name,
            int step,
            Seat seat,
            int first,
            ParameterStore store,
            @Nullable ParameterStore experts)
            throws IOException {
        int end = first == 0 ? 1 : store.states();
        Map<WeightTensor, float[]> all = new LinkedHashMap<>();
        for (int k = first; k < end; k++) {
            collect(k, seat, seat.dense, store, part.layers(), all);
            if (experts != null) {
                collect(k, seat, seat.experts, experts, part.expertLayers(), all);
            }
        }
        if (end > first && (seat.dense || seat.experts)) {
            Map<String, String> metadata = new LinkedHashMap<>(expected);
            metadata.put("format", "pt");
            metadata.put(STEPS, Integer.toString(step));
            metadata.put(RULE, rule);
            LossScale scale = store.lossScale();
            if (scale != null) {
                metadata.put(UPDATES, Long.toString(store.updates(step)));
                metadata.put(SCALE, Double.toString(scale.value()));
                metadata.put(GOOD, Integer.toString(scale.goodSteps()));
            }
            SafetensorsWriter.write(
                    folder.resolve(file(name, seat.file, seat.files)),
                    metadata,
                    List.copyOf(all.keySet()),
                    t ->
                            Buffer.wrap(
                                    MemorySegment.ofArray(all.getOrDefault(t, new float[0])),
                                    DataType.FLOAT32));
        }
        world.barrier(world.device().defaultStream());
        if (end > first && world.rank() == 0 && seat.files > 1) {
            index(folder, name, seat.files);
        }
        world.barrier(world.device().defaultStream());
    }

    private static String file(String name, int file, int files) {
        return files == 1
                ? name
                : name.replace(
                        ".safetensors",
                        String.format(Locale.ROOT, "-%05d-of-%05d.safetensors", file + 1, files));
    }

    private static void index(Path folder, String name, int files) throws IOException {
        Map<String, String> places = new LinkedHashMap<>();
        long bytes = 0;
        for (int f = 0; f < files; f++) {
            String file = file(name, f, files);
            try (Safetensors in = Safetensors.open(folder.resolve(file))) {
                for (String tensor : in.names()) {
                    places.put(tensor, file);
                    bytes += in.tensor(tensor).bytes();
                }
            }
        }
        SafetensorsWriter.writeIndex(folder.resolve(name + Safetensors.INDEX), places, bytes);
    }

    /** Gathers whole matrices; those that this rank does not write are dropped. */
    private void collect(
            int state,
            Seat seat,
            boolean writes,
            ParameterStore store,
            List<Part.Layer> layers,
            Map<WeightTensor, float[]> to) {
        store.visit(
                state,
                (layer, weight, values) -> {
                    Part.Layer l = layers.get(layer);
                    Weight w = l.weights().get(weight);
                    float[] whole = whole(seat.tensor, w, values);
                    if (writes) {
                        for (FileTensor t : tensors(l, w, state, FileTensor.PREFIX)) {
                            to.put(
                                    new WeightTensor(t.name(), WeightType.F32, t.shape()),
                                    t.of(whole, w));
                        }
                    }
                });
    }

    private float[] whole(Communicator tensor, Weight w, Buffer values) {
        int parts = part.tensorRanks();
        float[] whole = new float[Math.toIntExact(w.count(1))];
        if (parts == 1 || w.split() == GptShape.Split.NONE) {
            values.copyTo(whole);
            return whole;
        }
        int count = Math.toIntExact(values.count());
        float[] gathered = new float[parts * count];
        try (Buffer all = tensor.device().allocate(DataType.FLOAT32, gathered.length)) {
            Buffer own = all.slice((long) tensor.rank() * count, count);
            Stream stream = tensor.device().defaultStream();
            if (values.device().kind() == Device.Kind.HOST) {
                own.copyFrom(values.asSegment());
            } else {
                stream.copy(values, own);
            }
            tensor.allGather(own, all, stream);
            stream.synchronize();
            all.copyTo(gathered);
        }
        int run = Math.toIntExact(w.run(parts));
        for (int r = 0; r < parts; r++) {
            for (int i = 0; i < count; i += run) {
                int to = Math.toIntExact(w.index(i, r, parts));
                System.arraycopy(gathered, r * count + i, whole, to, run);
            }
        }
        return whole;
    }
}

package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.FileReads;
import io.jccl.offload.optim.StateTensor;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import java.util.zip.CRC32C;

/**
 * Files of a saved step. Each holds some range of each layer: a header with its CRC-32C, then for
 * each layer master parameters and state tensors as in memory, then the CRC-32C of those. A step is
 * whole if the files of one save have every element.
 */
final class Checkpoint {
    /** The id of files that ranks wrote without asking each other. */
    static final long ALONE = 0;

    /** Folders are named by 12 digits. */
    static final long MOST_STEPS = 999_999_999_999L;

    private static final byte[] MAGIC = "JCCLZER2".getBytes(StandardCharsets.US_ASCII);

    /** Of files without the columns of tensors. */
    private static final byte[] FIRST = "JCCLZER1".getBytes(StandardCharsets.US_ASCII);

    private static final int BLOCK = 1 << 20;
    private static final int MOST_HEADER = 1 << 28;
    private static final AtomicLong LAST_ID = new AtomicLong(ALONE);
    private static final String STEP = "step-";
    private static final String SUFFIX = ".shard";

    private final List<Shard> shards;

    private Checkpoint(List<Shard> shards) {
        this.shards = shards;
    }

    /** Some elements of a layer. */
    record Range(ShardedLayer layer, long from, long count) {}

    /** The header of a file. */
    record Header(
            long id,
            long steps,
            double lossScale,
            int goodSteps,
            int rank,
            int size,
            String optimizer,
            List<StateTensor> state,
            List<Range> ranges) {
        int moments() {
            return state.size();
        }

        /** Bytes of parameters (0) or a state tensor of some elements. */
        long bytes(int k, long count) {
            StateTensor t = tensor(k);
            return t.count(count) * t.type().size();
        }

        /** Bytes of parameters (0) or a state tensor: of means of rows and columns all. */
        long bytes(int k, Range r) {
            StateTensor t = tensor(k);
            return t.count(r.count, r.layer.shapes()) * t.type().size();
        }

        StateTensor tensor(int k) {
            return k == 0 ? ZeroConfig.MASTER : state.get(k - 1);
        }

        /** Bytes of parameters and state. */
        long bytes(Range r) {
            long sum = 0;
            for (int k = 0; k <= moments(); k++) {
                sum += bytes(k, r);
            }
            return sum;
        }

        long dataBytes() {
            long sum = 0;
            for (Range r : ranges) {
                sum += bytes(r);
            }
            return sum;
        }
    }

    /** A file and where its data begins. */
    private record Shard(Path file, Header header, long data) {}

    /** Gives the elements to write. */
    @FunctionalInterface
    interface Source {
        Buffer get(int layer, int k);
    }

    /**
     * A number that a float64 holds exactly: until 2109 it is less than 2^52. Later saves of a step
     * have larger ones.
     */
    static long newId() {
        int random = ThreadLocalRandom.current().nextInt(1 << 10); // for jobs that save at once
        long now = (System.currentTimeMillis() << 10) + random;
        return LAST_ID.updateAndGet(last -> Math.max(last + 1, now));
    }

    long steps() {
        return shards.getFirst().header.steps;
    }

    double lossScale() {
        return shards.getFirst().header.lossScale;
    }

    int goodSteps() {
        return shards.getFirst().header.goodSteps;
    }

    static void write(Path folder, Header h, Source source) throws IOException {
        Path target = folder.resolve(String.format(Locale.ROOT, STEP + "%012d", h.steps));
        String block = String.format(Locale.ROOT, "-%05d-of-%05d" + SUFFIX, h.rank, h.size);
        Path file = named(target, h.id, block);
        // Several jobs may save alone at once.
        Path part = named(target, h.id == ALONE ? newId() : h.id, block + AtomicFile.PART);
        try {
            Files.createDirectories(target);
            PartFiles.remove(target, block);
            AtomicFile.write(
                    part,
                    file,
                    c -> {
                        PartFiles.lock(c);
                        write(c, h, source);
                    });
            AtomicFile.force(target);
            AtomicFile.force(folder);
        } catch (IOException e) {
            throw new IOException(
                    "cannot save %s bytes of state: %s; what was saved before is as it was"
                            .formatted(h.dataBytes(), e),
                    e);
        }
    }

    private static Path named(Path step, long id, String rest) {
        return step.resolve(String.format(Locale.ROOT, "%013x", id) + rest);
    }

    private static void write(FileChannel c, Header h, Source source) throws IOException {
        AtomicFile.writeAll(c, encode(h));
        CRC32C crc = new CRC32C();
        ByteBuffer block = ByteBuffer.allocateDirect(BLOCK);
        for (int layer = 0; layer < h.ranges.size(); layer++) {
            for (int k = 0; k <= h.moments(); k++) {
                MemorySegment s = source.get(layer, k).asSegment();
                for (long at = 0; at < s.byteSize(); at += BLOCK) {
                    int n = (int) Math.min(BLOCK, s.byteSize() - at);
                    block.clear().limit(n);
                    MemorySegment.copy(s, at, MemorySegment.ofBuffer(block), 0, n);
                    crc.update(block);
                    block.rewind();
                    AtomicFile.writeAll(c, block);
                }
            }
        }
        AtomicFile.writeAll(c, number((int) crc.getValue()));
    }

    private static ByteBuffer number(int x) {
        return ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN).putInt(x).flip();
    }

    private static ByteBuffer encode(Header h) throws IOException {
        var bytes = new java.io.ByteArrayOutputStream();
        var out = new java.io.DataOutputStream(bytes);
        out.writeLong(h.id);
        out.writeLong(h.steps);
        out.writeDouble(h.lossScale);
        out.writeInt(h.goodSteps);
        out.writeInt(h.rank);
        out.writeInt(h.size);
        out.writeUTF(h.optimizer);
        out.writeInt(h.moments());
        out.writeInt(h.ranges.size());
        for (Range r : h.ranges) {
            out.writeUTF(r.layer.name());
            out.writeInt(r.layer.tensors().size());
            for (ShardedLayer.Tensor t : r.layer.tensors()) {
                out.writeUTF(t.name());
                out.writeLong(t.count());
                out.writeLong(t.columns());
            }
            out.writeLong(r.from);
            out.writeLong(r.count);
        }
        byte[] body = bytes.toByteArray();
        CRC32C crc = new CRC32C();
        crc.update(body);
        return ByteBuffer.allocate(MAGIC.length + 2 * Integer.BYTES + body.length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(MAGIC)
                .putInt(body.length)
                .putInt((int) crc.getValue())
                .put(body)
                .flip();
    }

    /** Opens a file of this model and optimizer; only then its size can be known. */
    private static Shard open(
            Path file, String optimizer, List<StateTensor> state, List<ShardedLayer> layers)
            throws IOException {
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
            int before = MAGIC.length + 2 * Integer.BYTES;
            ByteBuffer b = ByteBuffer.allocate(before).order(ByteOrder.LITTLE_ENDIAN);
            FileReads.readAll(c, 0, b, file);
            byte[] magic = new byte[MAGIC.length];
            b.get(magic);
            boolean columns = Arrays.equals(magic, MAGIC);
            if (!columns && !Arrays.equals(magic, FIRST)) {
                throw new IOException(file + " is not a file of saved state: remove it");
            }
            int length = b.getInt();
            int expected = b.getInt();
            if (length < 0 || length > Math.min(MOST_HEADER, c.size())) {
                throw damaged(file, "its header is said to have " + length + " bytes");
            }
            byte[] body = new byte[length];
            FileReads.readAll(c, before, ByteBuffer.wrap(body), file);
            CRC32C crc = new CRC32C();
            crc.update(body);
            if ((int) crc.getValue() != expected) {
                throw damaged(file, "the checksum of its header is wrong");
            }
            Header h = decode(body, columns, optimizer, state, layers);
            Shard s = new Shard(file, h, before + (long) length);
            check(s, layers, optimizer, state);
            long whole = s.data + h.dataBytes() + Integer.BYTES;
            if (c.size() != whole) {
                throw damaged(file, "it has " + c.size() + " bytes, expected " + whole);
            }
            return s;
        }
    }

    private static IOException damaged(Path file, String what) {
        return new IOException(
                file + " is damaged: " + what + "; remove its folder to load an older step");
    }

    private static Header decode(
            byte[] body,
            boolean columns,
            String expected,
            List<StateTensor> state,
            List<ShardedLayer> model)
            throws IOException {
        var in = new java.io.DataInputStream(new java.io.ByteArrayInputStream(body));
        long id = in.readLong();
        long steps = in.readLong();
        double scale = in.readDouble();
        int good = in.readInt();
        int rank = in.readInt();
        int size = in.readInt();
        String optimizer = in.readUTF();
        int moments = in.readInt();
        int layers = in.readInt();
        List<Range> ranges = new ArrayList<>();
        for (int i = 0; i < layers; i++) {
            String name = in.readUTF();
            int count = in.readInt();
            List<ShardedLayer.Tensor> tensors = new ArrayList<>();
            for (int t = 0; t < count; t++) {
                String tensor = in.readUTF();
                long elements = in.readLong();
                tensors.add(
                        new ShardedLayer.Tensor(
                                tensor, elements, columns ? in.readLong() : elements));
            }
            ShardedLayer layer = new ShardedLayer(name, tensors);
            // Old files have no shapes: they are taken to be those of the model.
            if (!columns && i < model.size() && model.get(i).sameTensors(layer)) {
                layer = model.get(i);
            }
            ranges.add(new Range(layer, in.readLong(), in.readLong()));
        }
        List<StateTensor> tensors =
                optimizer.equals(expected) && moments == state.size()
                        ? state
                        : Collections.nCopies(moments, ZeroConfig.MASTER);
        return new Header(id, steps, scale, good, rank, size, optimizer, tensors, ranges);
    }

    /** The newest step that is whole, of this model. */
    static Checkpoint newest(
            Path folder, List<ShardedLayer> layers, String optimizer, List<StateTensor> state)
            throws IOException {
        List<Path> found = new ArrayList<>();
        if (Files.isDirectory(folder)) {
            try (Stream<Path> list = Files.list(folder)) {
                list.filter(p -> p.getFileName().toString().matches(STEP + "\\d{12}"))
                        .forEach(found::add);
            }
        }
        found.sort(Comparator.reverseOrder());
        String why = "it has no folders " + STEP + "N";
        for (Path step : found) {
            Map<Long, List<Shard>> saves = new TreeMap<>(Comparator.reverseOrder());
            List<Path> files = new ArrayList<>();
            try (Stream<Path> list = Files.list(step)) {
                list.filter(p -> p.getFileName().toString().endsWith(SUFFIX)).forEach(files::add);
            }
            files.sort(Comparator.naturalOrder());
            for (Path file : files) {
                Shard s = open(file, optimizer, state, layers);
                saves.computeIfAbsent(s.header.id, id -> new ArrayList<>()).add(s);
            }
            String missing = step + " has no files";
            for (List<Shard> shards : saves.values()) {
                Checkpoint c = new Checkpoint(shards);
                missing = c.missing(layers);
                if (missing.isEmpty()) {
                    return c;
                }
                missing = step + " is not whole: " + missing;
            }
            why = found.getFirst().equals(step) ? missing : why;
        }
        throw new IOException(folder + " has no whole step to load: " + why);
    }

    private static void check(
            Shard s, List<ShardedLayer> layers, String optimizer, List<StateTensor> state)
            throws IOException {
        Header h = s.header;
        int moments = state.size();
        boolean shapes = state.stream().anyMatch(t -> t.layout() == StateTensor.Layout.FACTORED);
        if (!h.optimizer.equals(optimizer) || h.moments() != moments) {
            throw new IOException(
                    "%s is of optimizer %s with %s moments, expected %s with %s"
                            .formatted(s.file, h.optimizer, h.moments(), optimizer, moments));
        }
        if (h.ranges.size() != layers.size()) {
            throw new IOException(
                    s.file + " has " + h.ranges.size() + " layers, the model " + layers.size());
        }
        for (int i = 0; i < layers.size(); i++) {
            ShardedLayer layer = h.ranges.get(i).layer;
            boolean same = layer.sameTensors(layers.get(i));
            if (!same || (shapes && !layer.sameMatrices(layers.get(i)))) {
                throw new IOException(
                        "%s is of another model%s: its layer %s is %s, expected %s"
                                .formatted(
                                        s.file,
                                        same ? ", with tensors of another shape" : "",
                                        i,
                                        layer,
                                        layers.get(i)));
            }
        }
    }

    /** The first elements that no file has; empty if there are none. */
    private String missing(List<ShardedLayer> layers) {
        for (int i = 0; i < layers.size(); i++) {
            long at = 0;
            long count = layers.get(i).count();
            while (at < count) {
                long next = at;
                for (Shard s : shards) {
                    Range r = s.header.ranges.get(i);
                    if (r.from <= at) {
                        next = Math.max(next, r.from + r.count);
                    }
                }
                if (next == at) {
                    List<Integer> ranks = shards.stream().map(s -> s.header.rank).toList();
                    return "no file has element %s of layer %s; there are those of ranks %s of %s"
                            .formatted(
                                    at, layers.get(i).name(), ranks, shards.getFirst().header.size);
                }
                at = next;
            }
        }
        return "";
    }

    /** Compares the checksums of all data. */
    void verify() throws IOException {
        ByteBuffer block = ByteBuffer.allocateDirect(BLOCK).order(ByteOrder.LITTLE_ENDIAN);
        for (Shard s : shards) {
            try (FileChannel c = FileChannel.open(s.file, StandardOpenOption.READ)) {
                CRC32C crc = new CRC32C();
                long end = s.data + s.header.dataBytes();
                for (long at = s.data; at < end; at += BLOCK) {
                    block.clear().limit((int) Math.min(BLOCK, end - at));
                    FileReads.readAll(c, at, block, s.file);
                    crc.update(block);
                }
                block.clear().limit(Integer.BYTES);
                FileReads.readAll(c, end, block, s.file);
                if (block.getInt() != (int) crc.getValue()) {
                    throw damaged(s.file, "the checksum of its data is wrong");
                }
            }
        }
    }

    /** Reads state k of a layer from an element on. */
    void read(int layer, int k, long from, long count, Buffer to) throws IOException {
        MemorySegment memory = to.asSegment();
        ByteBuffer block = ByteBuffer.allocateDirect(BLOCK);
        for (Shard s : shards) {
            long at = s.data;
            for (int i = 0; i < layer; i++) {
                at += s.header.bytes(s.header.ranges.get(i));
            }
            Range r = s.header.ranges.get(layer);
            for (int i = 0; i < k; i++) {
                at += s.header.bytes(i, r);
            }
            StateTensor tensor = s.header.tensor(k);
            if (tensor.layout() == StateTensor.Layout.FACTORED) {
                // Each file has it all.
                try (FileChannel c = FileChannel.open(s.file, StandardOpenOption.READ)) {
                    long bytes = memory.byteSize();
                    for (long i = 0; i < bytes; i += BLOCK) {
                        block.clear().limit((int) Math.min(BLOCK, bytes - i));
                        FileReads.readAll(c, at + i, block, s.file);
                        MemorySegment.copy(
                                MemorySegment.ofBuffer(block), 0, memory, i, block.limit());
                    }
                }
                return;
            }
            // Ranges begin at a multiple of a unit.
            int unit = tensor.unit();
            int bytes = Math.toIntExact(s.header.bytes(k, unit));
            long first = Math.max(from, r.from);
            long end = Math.min(from + count, r.from + r.count);
            try (FileChannel c = FileChannel.open(s.file, StandardOpenOption.READ)) {
                long i = first;
                while (i < end) {
                    int n = (int) Math.min(BLOCK / bytes * (long) unit, end - i);
                    block.clear().limit(Math.toIntExact(s.header.bytes(k, n)));
                    FileReads.readAll(c, at + (i - r.from) / unit * bytes, block, s.file);
                    MemorySegment.copy(
                            MemorySegment.ofBuffer(block),
                            0,
                            memory,
                            (i - from) / unit * bytes,
                            block.limit());
                    i += n;
                }
            }
        }
    }
}

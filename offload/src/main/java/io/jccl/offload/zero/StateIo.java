package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.StateTensor;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;

/** State input and output: initial values, values for callers, and files. */
final class StateIo {
    /** Factor of the configuration's checksum in a vote, whose lower 32 bits are that of values. */
    private static final double CONFIG_UNIT = 0x1p32;

    /** Leaves 20 bits of the checksum: a float64 holds 52 exactly. */
    private static final int CONFIG_SHIFT = 12;

    private final ZeroConfig config;
    private final Optimizer optimizer;
    private final LossScale scale;
    private final Tiers tiers;
    private final int size;
    private final int rank;
    private final Ranks ranks;
    private final Progress progress;
    private final List<Part> parts;
    private final OptimizerStates states;

    /** This rank's part of a vote: {@link #configChecksum} in its place. */
    private final double configVote;

    StateIo(
            ZeroConfig config,
            Ranks ranks,
            Progress progress,
            List<Part> parts,
            OptimizerStates states) {
        this.config = config;
        this.optimizer = config.optimizer();
        this.scale = config.scale();
        this.tiers = config.tiers();
        this.size = config.size();
        this.rank = config.rank();
        this.ranks = ranks;
        this.progress = progress;
        this.parts = parts;
        this.states = states;
        this.configVote = configChecksum(config) * CONFIG_UNIT;
    }

    /** A checksum of the arguments that all ranks have to share. */
    private static double configChecksum(ZeroConfig config) {
        StringBuilder text = new StringBuilder(config.options().toString());
        text.append(config.optimizer().label()).append(config.layers());
        for (ShardedLayer l : config.layers()) {
            for (ShardedLayer.Tensor t : l.tensors()) {
                text.append(config.groups().of(l.name(), t.name()).rate()).append(' ');
            }
        }
        CRC32C crc = new CRC32C();
        crc.update(text.toString().getBytes(StandardCharsets.UTF_8));
        return (double) (crc.getValue() >> CONFIG_SHIFT);
    }

    /** Throws on all ranks if one was created with other arguments, after a vote with them. */
    private void checkConfigs() {
        double first = Math.floor(ranks.number(0) / CONFIG_UNIT);
        for (int r = 1; r < size; r++) {
            if (Math.floor(ranks.number(r) / CONFIG_UNIT) != first) {
                throw new JcclException(
                        "the optimizer of rank "
                                + r
                                + " was created with other layers, groups, options or another rule"
                                + " than that of rank 0: give all ranks the same");
            }
        }
    }

    /** Sets the state, but not the parameters that are made from it. */
    void initialize(ZeroOptimizer.Initializer initializer) {
        restore(
                0,
                (layer, tensor, moment, to) -> {
                    if (moment < 0) {
                        initializer.fill(layer, tensor, to);
                    }
                });
    }

    /** Sets the state after a number of steps, but not the parameters that are made from it. */
    void restore(long steps, ZeroOptimizer.StateInitializer initializer) {
        progress.clear();
        CRC32C crc = new CRC32C();
        try (Buffer whole = tiers.pinned().allocate(DataType.FLOAT32, Part.mostPadded(parts))) {
            for (Part p : parts) {
                for (int k = 0; k <= optimizer.moments(); k++) {
                    whole.zero();
                    long at = 0;
                    for (ShardedLayer.Tensor t : p.layer.tensors()) {
                        Buffer to = whole.slice(at, t.count());
                        initializer.fill(p.layer.name(), t.name(), k - 1, to);
                        at += t.count();
                    }
                    add(crc, whole.slice(0, p.count).asSegment());
                    Buffer own =
                            config.replicated(k)
                                    ? whole.slice(0, p.count)
                                    : whole.slice(p.from, p.updated);
                    config.tensor(k).encode(p.layer.shapes(), own, states.room(p, k));
                    states.put(p, k);
                }
            }
        }
        ranks.vote(configVote + (double) crc.getValue(), Ranks.FINE);
        checkConfigs();
        for (int r = 1; r < size; r++) {
            if (ranks.number(r) != ranks.number(0)) {
                throw new JcclException(
                        "the initial values on rank "
                                + r
                                + " differ from those on rank 0: give all ranks the same, such as"
                                + " from one seed");
            }
        }
        progress.set(steps);
    }

    private static void add(CRC32C crc, MemorySegment values) {
        for (long i = 0; i < values.byteSize(); i += 1 << 30) {
            crc.update(values.asSlice(i, Math.min(1 << 30, values.byteSize() - i)).asByteBuffer());
        }
    }

    /** Visits master parameters (0) or a moment. */
    void forEach(int k, ZeroOptimizer.Visitor visitor) {
        boolean onHost = config.onHost();
        boolean whole = config.stage() == 0 || config.replicated(k);
        boolean coded = config.tensor(k).layout() != StateTensor.Layout.FLOAT32;
        long most = Part.mostPadded(parts);
        try (Buffer device = tiers.device().allocate(DataType.FLOAT32, most);
                Buffer host = tiers.pinned().allocate(DataType.FLOAT32, onHost ? 0 : most);
                Buffer decoded = tiers.pinned().allocate(DataType.FLOAT32, coded ? most : 0)) {
            for (Part p : parts) {
                Buffer own = states.get(p, k);
                if (coded) {
                    Buffer wide = decoded.slice(0, whole ? p.count : p.updated);
                    config.tensor(k).decode(p.layer.shapes(), own, wide);
                    own = wide;
                }
                Buffer values = onHost ? device : host;
                if (whole) {
                    values = own;
                } else {
                    Buffer all = device.slice(0, p.padded);
                    tiers.engine().toDevice(own, p.ofRank(all), 0).await(FOREVER);
                    config.comm().allGather(all, ranks.stream);
                    ranks.mark();
                    ranks.drain();
                    if (!onHost) {
                        tiers.engine().toHost(all, host.slice(0, p.padded), 0).await(FOREVER);
                    }
                }
                long at = 0;
                for (ShardedLayer.Tensor t : p.layer.tensors()) {
                    visitor.visit(p.layer.name(), t.name(), values.slice(at, t.count()));
                    at += t.count();
                }
            }
        }
    }

    /** As {@link ZeroOptimizer#save}. */
    void save(Path folder) throws IOException {
        // One number for the files of all ranks, so that those of different calls are not mixed.
        ranks.vote(rank == 0 ? (double) Checkpoint.newId() : 0, Ranks.FINE);
        long id = (long) ranks.number(0);
        IOException failure = null;
        RuntimeException unreadable = null;
        try {
            write(folder, id, false);
        } catch (IOException e) {
            failure = e;
        } catch (RuntimeException e) {
            unreadable = e; // state in a store; the others wait for this rank
        }
        ranks.vote(failure == null && unreadable == null);
        if (failure != null) {
            throw failure;
        }
        if (unreadable != null) {
            throw unreadable;
        }
        if (ranks.worst() != Ranks.FINE) {
            throw new JcclException(
                    "%s could not save step %s to %s; see the error there"
                            .formatted(ranks.failedRanks(), progress.steps, folder));
        }
    }

    /** As {@link ZeroOptimizer#saveAlone}. */
    void saveAlone(Path folder) throws IOException {
        write(folder, Checkpoint.ALONE, true);
    }

    private void write(Path folder, long id, boolean all) throws IOException {
        List<Checkpoint.Range> ranges = new ArrayList<>();
        for (Part p : parts) {
            boolean whole = all && config.stage() == 0;
            long from = whole ? 0 : Math.min(p.count, rank * p.block);
            long to = whole ? p.count : Math.min(p.count, (rank + 1) * p.block);
            ranges.add(new Checkpoint.Range(p.layer, from, to - from));
        }
        Checkpoint.Header header =
                new Checkpoint.Header(
                        id,
                        progress.steps,
                        scale.value(),
                        scale.goodSteps(),
                        rank,
                        size,
                        optimizer.label(),
                        optimizer.state(),
                        ranges);
        Checkpoint.write(
                folder,
                header,
                (layer, k) -> {
                    Part p = parts.get(layer);
                    Checkpoint.Range r = ranges.get(layer);
                    // A block may consist only of padding, after the last element.
                    StateTensor t = config.tensor(k);
                    long first = r.count() == 0 ? 0 : r.from() - p.from;
                    return config.replicated(k)
                            ? states.get(p, k)
                            : states.get(p, k).slice(t.count(first), t.count(r.count()));
                });
    }

    /**
     * Finds the newest whole step and checks all of its files; all ranks find the same.
     *
     * @throws IOException if this rank finds none, or a damaged file
     */
    Checkpoint find(Path folder) throws IOException {
        Checkpoint checkpoint = null;
        IOException failure = null;
        try {
            checkpoint =
                    Checkpoint.newest(
                            folder, config.layers(), optimizer.label(), optimizer.state());
            checkpoint.verify();
        } catch (IOException e) {
            failure = e;
        } catch (RuntimeException e) {
            // For example of a folder whose names cannot be read; the others wait for this rank.
            failure = new IOException("cannot load from " + folder + ": " + e, e);
        }
        ranks.vote(
                checkpoint == null ? -1 : (double) checkpoint.steps(),
                failure == null ? Ranks.FINE : Ranks.FAILED);
        if (failure != null) {
            throw failure;
        }
        if (ranks.worst() != Ranks.FINE || checkpoint == null) {
            throw new JcclException(
                    "%s could not load from %s; see the error there"
                            .formatted(ranks.failedRanks(), folder));
        }
        for (int r = 0; r < size; r++) {
            if (ranks.number(r) != checkpoint.steps()) {
                throw new JcclException(
                        String.format(
                                "rank %s finds step %s in %s, rank %s step %s: give all ranks one"
                                        + " folder",
                                r, (long) ranks.number(r), folder, rank, checkpoint.steps()));
            }
        }
        return checkpoint;
    }

    /** Sets the state, but not the parameters that are made from it. */
    void load(Checkpoint checkpoint, Path folder) {
        progress.clear();
        RuntimeException local = null;
        try {
            for (Part p : parts) {
                for (int k = 0; k <= optimizer.moments(); k++) {
                    Buffer to = states.room(p, k);
                    to.zero(); // the padding
                    long real = Math.max(0, Math.min(p.updated, p.count - p.from));
                    checkpoint.read(
                            p.index,
                            k,
                            p.from,
                            real,
                            to.slice(0, config.stateCount(k, p.layer, real)));
                    states.put(p, k);
                }
            }
        } catch (IOException | RuntimeException e) {
            local =
                    e instanceof RuntimeException x
                            ? x
                            : new JcclException("cannot read " + folder + ": " + e, e);
        }
        ranks.vote(configVote, local == null ? Ranks.FINE : Ranks.FAILED);
        if (ranks.worst() != Ranks.FINE) {
            throw ranks.failed(local, "state could not be read; load again");
        }
        checkConfigs();
        scale.restore(checkpoint.lossScale(), checkpoint.goodSteps());
        progress.set(checkpoint.steps());
    }
}

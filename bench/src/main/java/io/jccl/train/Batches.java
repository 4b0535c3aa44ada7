package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;

/**
 * The samples of each step: sequences at positions of the text that depend only on seed, step and
 * sample number, split into micro-batches independently of the number of ranks.
 *
 * <p>A step's characters are on the device from its beginning to its end, when the caller has
 * waited for the device.
 */
final class Batches {
    private final Corpus corpus;
    private final long seed;
    private final int batch;
    private final int sequences;
    private final int first;
    private final int context;
    private final Stream stream;

    /** For each micro-batch the characters it begins with, then those to predict: int32. */
    private final Buffer all;

    /** Where the host writes them: the same memory on the host device. */
    private final Buffer written;

    private final Buffer[] inputs;
    private final Buffer[] targets;

    /**
     * Creates the batches of a rank.
     *
     * @param corpus the text
     * @param seed of the run
     * @param batch sequences of a step, of all ranks
     * @param sequences of a micro-batch
     * @param microBatches of a rank's step
     * @param first the first sequence of this rank
     * @param context characters of a sequence
     * @param device where they are needed
     * @param owned owner of the memory
     */
    Batches(
            Corpus corpus,
            long seed,
            int batch,
            int sequences,
            int microBatches,
            int first,
            int context,
            Device device,
            Owned owned) {
        this.corpus = corpus;
        this.seed = seed;
        this.batch = batch;
        this.sequences = sequences;
        this.first = first;
        this.context = context;
        stream = device.defaultStream();
        long rows = (long) sequences * context;
        long count = 2L * microBatches * rows;
        all = owned.add(device.allocate(DataType.INT32, count));
        written =
                device.kind() == Device.Kind.HOST
                        ? all
                        : owned.add(Cuda.pinned(DataType.INT32, count));
        inputs = new Buffer[microBatches];
        targets = new Buffer[microBatches];
        for (int m = 0; m < microBatches; m++) {
            inputs[m] = all.slice(2L * m * rows, rows);
            targets[m] = all.slice((2L * m + 1) * rows, rows);
        }
    }

    /** Moves to a step, counted from 0. */
    void step(long step) {
        long to = 0;
        for (int m = 0; m < inputs.length; m++) {
            for (int shift = 0; shift < 2; shift++) {
                for (int s = 0; s < sequences; s++) {
                    long example = step * batch + first + (long) m * sequences + s;
                    int from = Corpus.place(seed, example, 0, corpus.tokens().length - context);
                    for (int i = 0; i < context; i++) {
                        written.setLong(to++, corpus.token(from + shift + i));
                    }
                }
            }
        }
        if (written != all) {
            stream.copy(written, all);
        }
    }

    /** The characters of a micro-batch. */
    Buffer inputs(int micro) {
        return inputs[micro];
    }

    /** The characters to predict. */
    Buffer targets(int micro) {
        return targets[micro];
    }
}

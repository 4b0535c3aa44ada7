package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The samples of each step: sequences at positions of the text that depend only on seed, step and
 * sample number, split into micro-batches independently of the number of ranks. The held-out part
 * of the text has its own batches.
 *
 * <p>A step's tokens are on the device from its beginning to that of the next.
 */
final class Batches {
    private final Corpus corpus;
    private final long seed;
    private final int batch;
    private final int sequences;
    private final int first;
    private final int context;
    private final Evaluation evaluation;

    /** Characters of the text that are trained on; those after them are held out. */
    private final int trained;

    private final Stream stream;

    /** For each micro-batch its input characters, then those to predict: int32. */
    private final Buffer all;

    /** Where the host writes them: the same memory on the host device. */
    private final Buffer written;

    private final MemorySegment characters;

    private final Buffer[] inputs;
    private final Buffer[] targets;

    /** The current batch, and whether it is trained on. */
    private long number;

    private boolean training;

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
     * @param evaluation which part of the text is held out
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
            Evaluation evaluation,
            Device device,
            Owned owned) {
        this.corpus = corpus;
        this.seed = seed;
        this.batch = batch;
        this.sequences = sequences;
        this.first = first;
        this.context = context;
        this.evaluation = evaluation;
        trained = evaluation.trained(corpus.length());
        stream = device.defaultStream();
        long rows = (long) sequences * context;
        long count = 2L * microBatches * rows;
        all = owned.allocate(device, DataType.INT32, count);
        written =
                device.kind() == Device.Kind.HOST
                        ? all
                        : owned.add(Cuda.pinned(DataType.INT32, count));
        characters = written.asSegment();
        inputs = new Buffer[microBatches];
        targets = new Buffer[microBatches];
        for (int m = 0; m < microBatches; m++) {
            inputs[m] = all.slice(2L * m * rows, rows);
            targets[m] = all.slice((2L * m + 1) * rows, rows);
        }
    }

    /** Moves to a step, counted from 0. */
    void step(long step) {
        write(step, false);
    }

    /** Moves to a batch of the held-out text, counted from 0. */
    void evaluation(int number) {
        write(number, true);
    }

    /**
     * Moves to one text for all sequences of the first micro-batch.
     *
     * @param tokens at most as many as a sequence has
     * @param count number of tokens
     */
    void prompt(int[] tokens, int count) {
        awaitCopy();
        number = 0;
        training = false;
        for (int s = 0; s < sequences; s++) {
            for (int i = 0; i < count; i++) {
                characters.setAtIndex(ValueLayout.JAVA_INT, (long) s * context + i, tokens[i]);
            }
        }
        send();
    }

    private void write(long number, boolean held) {
        awaitCopy();
        this.number = number;
        training = !held;
        long to = 0;
        for (int m = 0; m < inputs.length; m++) {
            for (int shift = 0; shift < 2; shift++) {
                for (int s = 0; s < sequences; s++) {
                    long example = example(m) + s;
                    int from =
                            held
                                    ? held(example)
                                    : Corpus.place(seed, example, 0, trained - context);
                    for (int i = 0; i < context; i++) {
                        characters.setAtIndex(
                                ValueLayout.JAVA_INT, to++, corpus.tokens().get(from + shift + i));
                    }
                }
            }
        }
        send();
    }

    /** The host may write again when the device has what it wrote last. */
    private void awaitCopy() {
        if (written != all) {
            stream.synchronize();
        }
    }

    private void send() {
        if (written != all) {
            stream.copy(written, all);
        }
    }

    /** Start of a sequence: in the held-out text they are evenly spaced. */
    private int held(long example) {
        long last = (long) evaluation.batches() * batch - 1;
        long room = corpus.length() - trained - (context + 1L);
        return trained + (int) (last == 0 ? 0 : example * room / last);
    }

    /** The number of a micro-batch's first sequence among those of all ranks and batches. */
    private long example(int micro) {
        return number * batch + first + (long) micro * sequences;
    }

    /**
     * The place of a micro-batch's first token among those of all ranks and batches, whatever the
     * number of ranks.
     */
    long place(int micro) {
        return example(micro) * context;
    }

    /** Whether the current batch is trained on. */
    boolean training() {
        return training;
    }

    /** The seed of the run. */
    long seed() {
        return seed;
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

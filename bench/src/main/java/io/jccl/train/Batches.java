package io.jccl.train;

/**
 * Which characters a step trains on: sequences at places of the text that depend on seed, step and
 * number alone, cut into micro-batches the same way whoever computes them.
 */
final class Batches {
    private final Corpus corpus;
    private final long seed;
    private final int batch;
    private final int sequences;
    private final int first;
    private final int context;
    private long step;

    /**
     * Cuts a step's sequences.
     *
     * @param corpus the text
     * @param seed of the run
     * @param batch sequences of a step, of all ranks
     * @param sequences of a micro-batch
     * @param first the first sequence of this rank
     * @param context characters of a sequence
     */
    Batches(Corpus corpus, long seed, int batch, int sequences, int first, int context) {
        this.corpus = corpus;
        this.seed = seed;
        this.batch = batch;
        this.sequences = sequences;
        this.first = first;
        this.context = context;
    }

    /** Goes to a step, from 0 on. */
    void step(long next) {
        step = next;
    }

    private int place(int micro, int sequence) {
        long example = step * batch + first + (long) micro * sequences + sequence;
        return Corpus.place(seed, example, 0, corpus.tokens().length - context);
    }

    void inputs(int micro, int[] tokens) {
        fill(micro, 0, tokens);
    }

    /** The characters that follow. */
    void targets(int micro, int[] tokens) {
        fill(micro, 1, tokens);
    }

    private void fill(int micro, int shift, int[] tokens) {
        for (int s = 0; s < sequences; s++) {
            int from = place(micro, s) + shift;
            for (int i = 0; i < context; i++) {
                tokens[s * context + i] = corpus.token(from + i);
            }
        }
    }
}

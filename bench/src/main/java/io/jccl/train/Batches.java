package io.jccl.train;

/**
 * The samples of each step: sequences at positions of the text that depend only on seed, step and
 * sample number, split into micro-batches independently of the number of ranks.
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
     * Creates the batches of a rank.
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

    /** Moves to a step, counted from 0. */
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

    /** The characters to predict. */
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

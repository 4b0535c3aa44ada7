package io.jccl.train;

/**
 * Measurements on text that the model is not trained on, and generation of text at the end.
 *
 * @param every steps between two measurements, after which and after the last step the loss is
 *     measured; 0 for none
 * @param share part of the text that is held out, its end: 0 if nothing is measured
 * @param batches of a step's size that are measured, evenly spaced in the held-out text
 * @param sample tokens to generate after the last step; 0 for none
 */
public record Evaluation(int every, double share, int batches, int sample) {
    /** Nothing is measured or generated. */
    public static final Evaluation NONE = new Evaluation(0, 0, 0, 0);

    /**
     * Checks the arguments.
     *
     * @throws IllegalArgumentException if a number is out of range
     */
    public Evaluation {
        if (every < 0 || sample < 0) {
            throw new IllegalArgumentException(
                    ("steps between measurements and tokens to write are %s and %s, expected 0 or"
                                    + " more")
                            .formatted(every, sample));
        }
        if (every > 0 && (!(share > 0 && share < 1) || batches < 1)) {
            throw new IllegalArgumentException(
                    ("measured are %s batches in a share of %s of the text, expected 1 or more in"
                                    + " more than 0 and less than 1")
                            .formatted(batches, share));
        }
    }

    /** Whether anything is measured or generated. */
    boolean asked() {
        return every > 0 || sample > 0;
    }

    /** Characters of a text that are trained on. */
    int trained(int length) {
        return every == 0 ? length : length - (int) (length * share);
    }

    /** Whether the loss is measured after a step. */
    boolean follows(int step, int last) {
        return every > 0 && (step % every == 0 || step == last);
    }

    /**
     * Checks that a text is long enough.
     *
     * @param length of the text, tokens
     * @param context of the model
     * @throws IllegalArgumentException if a part of the text is shorter than a sequence
     */
    public void check(int length, int context) {
        int trained = trained(length);
        int held = length - trained;
        if (trained <= context + 1 || (every > 0 && held <= context + 1)) {
            String share = held < trained ? "larger" : "smaller";
            throw new IllegalArgumentException(
                    "--context is %s, but the text has %s tokens%s a longer text or less context"
                            .formatted(
                                    context,
                                    length,
                                    every == 0
                                            ? "; give"
                                            : (", %s of them held out by --eval-share; give a %s"
                                                            + " share,")
                                                    .formatted(held, share)));
        }
    }
}

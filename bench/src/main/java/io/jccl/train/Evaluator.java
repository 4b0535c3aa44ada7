package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Forward passes of one rank without a backward pass: the loss of held-out text, and text
 * generation. Between two steps a stage has no micro-batch in flight, so its first slot is free.
 *
 * <p><b>Threads:</b> that of the trainer.
 */
final class Evaluator {
    private final Communicator world;
    private final Communicator stages;
    private final Stage stage;
    private final Batches batches;
    private final Corpus corpus;
    private final RunSettings settings;
    private final Stream stream;

    /** Whether this rank's losses count, and whether it is the one that draws characters. */
    private final boolean counts;

    private final boolean draws;
    private final Buffer sum;

    /** The messages a stage receives and sends; empty without a pipeline. */
    private final Buffer received;

    private final Buffer sent;

    Evaluator(
            Communicator world,
            Communicator stages,
            Stage stage,
            Batches batches,
            Corpus corpus,
            RunSettings settings,
            boolean counts,
            boolean draws,
            Owned owned) {
        this.world = world;
        this.stages = stages;
        this.stage = stage;
        this.batches = batches;
        this.corpus = corpus;
        this.settings = settings;
        this.counts = counts;
        this.draws = draws;
        Device device = world.device();
        stream = device.defaultStream();
        boolean passes = stages.size() > 1 && settings.evaluation().asked();
        long passed = passes ? stage.activationCount() : 0;
        received = owned.floats(device, passed);
        sent = owned.floats(device, passed);
        sum = owned.add(device.allocate(DataType.FLOAT64, 1));
    }

    /**
     * The mean loss of the held-out text's batches. All ranks call it.
     *
     * @return nats per token
     */
    double loss() {
        int count = settings.evaluation().batches();
        double mine = 0;
        for (int n = 0; n < count; n++) {
            batches.evaluation(n);
            for (int micro = 0; micro < settings.techniques().accumulate(); micro++) {
                logits(micro);
                stage.addLoss(micro);
            }
            mine += stage.takeLoss();
        }
        sum.set(0, counts ? mine : 0);
        world.allReduce(sum, ReduceOp.SUM, stream);
        return sum.get(0) / ((double) count * settings.batch() * settings.shape().context());
    }

    /** Passes a micro-batch through all stages, without a backward pass. */
    private void logits(int micro) {
        int at = stages.rank();
        boolean first = at == 0;
        boolean last = at + 1 == stages.size();
        if (!first) {
            stages.recv(received, at - 1, stream);
        }
        stage.logits(micro, first ? null : received, last ? null : sent);
        if (!last) {
            stages.send(sent, at + 1, stream);
        }
    }

    /**
     * The logits of a text. All ranks call it.
     *
     * @param tokens at most as many as a sequence has
     * @return for each token those of the next one, on the rank that draws; empty on others
     */
    List<float[]> predict(int... tokens) {
        batches.prompt(tokens, tokens.length);
        logits(0);
        List<float[]> all = new ArrayList<>();
        for (int i = 0; draws && i < tokens.length; i++) {
            all.add(new float[settings.shape().vocabulary()]);
            stage.readLogits(i, all.get(i));
        }
        return all;
    }

    /**
     * Generates tokens, each drawn by the model's probabilities given those before it; the first
     * follows {@link Vocabulary#start}. All ranks call it.
     *
     * @param count tokens to generate
     * @return the text, the same on all ranks
     */
    String sample(int count) {
        int context = settings.shape().context();
        float[] logits = new float[settings.shape().vocabulary()];
        int known = corpus.vocabulary().size();
        SplittableRandom random = new SplittableRandom(settings.seed());
        int[] window = new int[context];
        window[0] = corpus.vocabulary().start();
        int filled = 1;
        int[] text = new int[count];
        for (int i = 0; i < count; i++) {
            batches.prompt(window, filled);
            logits(0);
            int token = 0;
            if (draws) {
                stage.readLogits(filled - 1, logits);
                // A loaded model may have tokens that the text does not.
                token = draw(Arrays.copyOf(logits, known), random.nextDouble());
            }
            sum.set(0, token);
            world.allReduce(sum, ReduceOp.SUM, stream);
            token = (int) sum.get(0);
            text[i] = token;
            if (filled == context) {
                System.arraycopy(window, 1, window, 0, context - 1);
                filled--;
            }
            window[filled++] = token;
        }
        return corpus.vocabulary().text(text, count);
    }

    /**
     * The token at a place in the sum of all probabilities, which are the softmax of the logits.
     *
     * @param place 0 to 1
     */
    static int draw(float[] logits, double place) {
        double highest = Double.NEGATIVE_INFINITY;
        for (float l : logits) {
            highest = Math.max(highest, l);
        }
        double all = 0;
        for (float l : logits) {
            all += Math.exp(l - highest);
        }
        double left = place * all;
        int token = 0;
        for (int t = 0; t < logits.length; t++) {
            double part = Math.exp(logits[t] - highest);
            if (part > 0) {
                token = t;
                left -= part;
            }
            if (left < 0) {
                break;
            }
        }
        return token;
    }
}

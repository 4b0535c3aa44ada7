package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;

/**
 * Data-parallel training, one call per rank: every rank holds all parameters, computes the gradient
 * of its share of the joint batch, and applies the average of all ranks' gradients.
 */
public final class Trainer {
    private static final int TEXT_LENGTH = 1 << 17;
    private static final float MOMENTUM = 0.9f;

    /**
     * What to train and how.
     *
     * @param steps number of optimizer steps
     * @param batch predictions of all ranks together that one rank's share is cut from
     * @param accumulate batches whose gradients are added up before one allReduce
     * @param hidden width of the model's hidden layer
     * @param learningRate of SGD with momentum
     * @param seed of the text, the initial parameters and the batches
     * @param op {@link ReduceOp#AVG}, or {@link ReduceOp#SUM} of gradients scaled beforehand
     * @param reportEvery steps between two reports
     */
    public record Settings(
            int steps,
            int batch,
            int accumulate,
            int hidden,
            float learningRate,
            long seed,
            ReduceOp op,
            int reportEvery) {}

    /** Hears on every rank how training goes. */
    @FunctionalInterface
    public interface Report {
        /**
         * Called after each {@code reportEvery} steps and after the last.
         *
         * @param step steps done
         * @param loss mean over the joint batch of that step, in nats per character
         */
        void step(int step, double loss);
    }

    /**
     * What came out on one rank.
     *
     * @param loss mean over the last step's joint batch, in nats per character
     * @param unigramEntropy what a model that ignores the context would reach at best
     * @param parameters the trained parameters
     * @param checksums the checksum of the parameters on each rank
     * @param seconds time of all steps
     * @param communicationSeconds the part of it inside allReduce: moving, and waiting for others
     * @param sample text that the model wrote
     */
    public record Result(
            double loss,
            double unigramEntropy,
            float[] parameters,
            long[] checksums,
            double seconds,
            double communicationSeconds,
            String sample) {}

    private Trainer() {}

    /**
     * Trains.
     *
     * @param comm this rank's end
     * @param s settings, the same on all ranks; {@code batch} is a multiple of the number of ranks
     * @param report hears of progress
     * @return the outcome, equal on all ranks but for the times
     */
    public static Result train(Communicator comm, Settings s, Report report) {
        byte[] text = Grammar.tokens(s.seed(), TEXT_LENGTH);
        int share = s.batch() / comm.size();
        int perStep = share * s.accumulate();
        // AVG divides by the ranks; for SUM that division has to happen before.
        float scale = 1f / (s.op().equals(ReduceOp.AVG) ? perStep : perStep * comm.size());

        Device device = comm.device();
        Stream stream = device.defaultStream();
        int size = CharModel.size(s.hidden());
        try (Buffer parameters = device.allocate(DataType.FLOAT32, size);
                Buffer gradients = device.allocate(DataType.FLOAT32, size);
                Buffer loss = device.allocate(DataType.FLOAT64, 1);
                Buffer checksums = device.allocate(DataType.INT64, comm.size())) {
            CharModel model =
                    new CharModel(s.hidden(), parameters.asSegment(), gradients.asSegment());
            if (comm.rank() == 0) {
                model.initialize(s.seed());
            }
            comm.broadcast(parameters, 0, stream);

            float[] velocity = new float[size];
            long communicating = 0;
            long start = System.nanoTime();
            for (int step = 1; step <= s.steps(); step++) {
                gradients.zero();
                double sum = 0;
                for (int micro = 0; micro < s.accumulate(); micro++) {
                    long batch = (step - 1L) * s.accumulate() + micro;
                    long first = batch * s.batch() + (long) comm.rank() * share;
                    for (long example = first; example < first + share; example++) {
                        sum +=
                                model.addGradient(
                                        text,
                                        Corpus.place(
                                                s.seed(), example, CharModel.CONTEXT, text.length));
                    }
                }
                scale(gradients.asSegment(), size, scale);

                long before = System.nanoTime();
                comm.allReduce(gradients, s.op(), stream);
                communicating += System.nanoTime() - before;

                update(parameters.asSegment(), gradients.asSegment(), velocity, s.learningRate());
                if (step % s.reportEvery() == 0 || step == s.steps()) {
                    loss.set(0, sum / perStep);
                    comm.allReduce(loss, ReduceOp.AVG, stream);
                    report.step(step, loss.get(0));
                }
            }
            long end = System.nanoTime();

            checksums.setLong(comm.rank(), checksum(parameters.asSegment(), size));
            comm.allGather(checksums, stream);
            long[] all = new long[comm.size()];
            for (int r = 0; r < all.length; r++) {
                all[r] = checksums.getLong(r);
            }
            float[] trained = new float[size];
            parameters.copyTo(trained);
            return new Result(
                    loss.get(0),
                    Grammar.unigramEntropy(text),
                    trained,
                    all,
                    (end - start) * 1e-9,
                    communicating * 1e-9,
                    model.sample(text, 160, s.seed()));
        }
    }

    private static void scale(MemorySegment values, int size, float factor) {
        for (int i = 0; i < size; i++) {
            values.setAtIndex(JAVA_FLOAT, i, values.getAtIndex(JAVA_FLOAT, i) * factor);
        }
    }

    private static void update(
            MemorySegment parameters, MemorySegment gradients, float[] velocity, float rate) {
        for (int i = 0; i < velocity.length; i++) {
            velocity[i] = MOMENTUM * velocity[i] + gradients.getAtIndex(JAVA_FLOAT, i);
            float p = parameters.getAtIndex(JAVA_FLOAT, i);
            parameters.setAtIndex(JAVA_FLOAT, i, p - rate * velocity[i]);
        }
    }

    /** FNV-1a over the bits, so that one differing bit shows. */
    private static long checksum(MemorySegment values, int size) {
        long h = 0xCBF29CE484222325L;
        for (int i = 0; i < size; i++) {
            h = (h ^ values.getAtIndex(JAVA_INT, i)) * 0x100000001B3L;
        }
        return h;
    }
}

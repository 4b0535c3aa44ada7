package io.jccl.train;

import java.util.List;
import java.util.Map;

/**
 * The result of a run.
 *
 * @param settings settings of the run
 * @param engine communication backend
 * @param first number of steps taken before
 * @param losses loss of each step, nats per token
 * @param validation loss of the held-out text after some steps, nats per token
 * @param sample text that the model generated at the end; empty if none was requested
 * @param seconds time of all steps, without evaluations
 * @param stepSeconds median of a step
 * @param share fraction of a step in which the training thread waits for communication; on GPUs in
 *     which operations run, whatever is computed concurrently
 * @param overlap fraction of asynchronous communication that the training thread did not wait for;
 *     NaN if there is none
 * @param axes seconds per step by kind of communication, the mean over ranks
 * @param measured steps over which shares were measured; 0 if they were not
 * @param bubble pipeline bubble: computed, then measured; empty without a pipeline
 * @param lossScale factor of the loss after the last step; 1 for none
 * @param skipped steps skipped because gradients overflowed
 * @param experts load of the experts of rank 0's blocks; empty without experts
 */
public record TrainResult(
        RunSettings settings,
        String engine,
        int first,
        List<Double> losses,
        Map<Integer, Double> validation,
        String sample,
        double seconds,
        double stepSeconds,
        double share,
        double overlap,
        Map<String, Double> axes,
        int measured,
        List<Double> bubble,
        double lossScale,
        int skipped,
        List<ExpertLoad> experts) {
    /**
     * Sequences per second.
     *
     * @return computed from the median step
     */
    public double samplesPerSecond() {
        return settings.batch() / stepSeconds;
    }

    /**
     * Characters per second.
     *
     * @return computed from the median step
     */
    public double tokensPerSecond() {
        return samplesPerSecond() * settings.shape().context();
    }

    /**
     * Largest difference between the losses of two runs at the same step, including those of the
     * held-out text.
     *
     * @param other a run of the same model
     * @return nats per token
     */
    public double difference(TrainResult other) {
        double most = 0;
        for (int i = 0; i < losses.size(); i++) {
            int there = first + i - other.first;
            if (there >= 0 && there < other.losses.size()) {
                most = Math.max(most, Math.abs(losses.get(i) - other.losses.get(there)));
            }
        }
        for (Map.Entry<Integer, Double> v : validation.entrySet()) {
            Double there = other.validation.get(v.getKey());
            if (there != null) {
                most = Math.max(most, Math.abs(v.getValue() - there));
            }
        }
        return most;
    }
}

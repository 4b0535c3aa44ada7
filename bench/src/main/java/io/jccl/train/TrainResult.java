package io.jccl.train;

import java.util.List;
import java.util.Map;

/**
 * What came out of a run.
 *
 * @param settings what was trained and how
 * @param engine what carried the data
 * @param first steps that were taken before
 * @param losses of each step, nats a character
 * @param seconds of all steps
 * @param stepSeconds median of a step
 * @param share part of a step in which the training thread waits for communication
 * @param overlap part of the communication beside the training thread that it did not wait for; NaN
 *     if there is none
 * @param axes seconds a step by kind of communication, the mean over ranks
 * @param measured steps over which shares were measured; 0 if they were not
 * @param bubble idle part of the pipeline: computed, then measured; empty without one
 * @param experts what the router said of balance; empty without experts
 */
public record TrainResult(
        RunSettings settings,
        String engine,
        int first,
        List<Double> losses,
        double seconds,
        double stepSeconds,
        double share,
        double overlap,
        Map<String, Double> axes,
        int measured,
        List<Double> bubble,
        Map<String, Double> experts) {
    /**
     * Sequences a second.
     *
     * @return by the median step
     */
    public double samplesPerSecond() {
        return settings.batch() / stepSeconds;
    }

    /**
     * Characters a second.
     *
     * @return by the median step
     */
    public double tokensPerSecond() {
        return samplesPerSecond() * settings.shape().context();
    }

    /**
     * Largest difference of a loss from another run's at the same step.
     *
     * @param other a run of the same model
     * @return nats a character
     */
    public double difference(TrainResult other) {
        double most = 0;
        for (int i = 0; i < losses.size(); i++) {
            int there = first + i - other.first;
            if (there >= 0 && there < other.losses.size()) {
                most = Math.max(most, Math.abs(losses.get(i) - other.losses.get(there)));
            }
        }
        return most;
    }
}

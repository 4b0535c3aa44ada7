package io.jccl.topology.simulate;

import io.jccl.topology.Operation;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * The result of simulating a plan. Immutable.
 *
 * @param operation the operation
 * @param ranks number of ranks
 * @param bytes size as nccl-tests prints it: of the whole buffer, all ranks' parts together
 * @param timeUs microseconds
 * @param algbwGBps {@code bytes} over time, GB/s (10^9 bytes)
 * @param busbwGBps that times {@link Operation#busFactor}
 * @param transfers number of times that a chunk went over a hop
 * @param faults wrong data, at most {@value Simulator#MAX_FAULTS}; empty if the result is right
 * @param faultCount total number of faults
 * @param stuck transfers that never started, as they wait for one another
 * @param arcs traffic of each arc, busiest first; unused arcs are left out
 */
public record Simulation(
        Operation operation,
        long ranks,
        long bytes,
        double timeUs,
        double algbwGBps,
        double busbwGBps,
        long transfers,
        List<Fault> faults,
        long faultCount,
        long stuck,
        List<ArcUse> arcs) {
    /** Copies the lists. */
    public Simulation {
        Objects.requireNonNull(operation, "operation");
        faults = List.copyOf(faults);
        arcs = List.copyOf(arcs);
    }

    static Simulation of(
            Operation op, int ranks, long bytes, double seconds, Network.Outcome outcome) {
        double us = seconds * 1e6;
        double algbw = seconds > 0 ? bytes / seconds / 1e9 : 0;
        return new Simulation(
                op,
                ranks,
                bytes,
                us,
                algbw,
                algbw * op.busFactor(ranks),
                outcome.transfers(),
                outcome.faults(),
                outcome.faultCount(),
                outcome.stuck(),
                outcome.arcs());
    }

    /**
     * Whether every rank ended with the right data.
     *
     * @return true if there is no fault and nothing is stuck
     */
    public boolean correct() {
        return faultCount == 0 && stuck == 0;
    }

    /**
     * The arc with the highest use.
     *
     * @return the arc; empty if there was no traffic
     */
    public Optional<ArcUse> busiest() {
        return arcs.isEmpty() ? Optional.empty() : Optional.of(arcs.getFirst());
    }
}

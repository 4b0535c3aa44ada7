package io.jccl.topology.simulate;

import java.util.List;

/**
 * Wrong data in the result: a rank's copy of a chunk has the wrong contributions.
 *
 * @param rank the rank
 * @param channel index in the plan's channels
 * @param source rank whose data the chunk is, -1 if it is a reduction of all
 * @param destination rank that the chunk is for, -1 if it is for all
 * @param chunk which part of that, from 0
 * @param missing ranks whose contribution is not in it
 * @param doubled ranks whose contribution is in it more than once
 * @param foreign ranks whose contribution should not be in it
 */
public record Fault(
        int rank,
        int channel,
        int source,
        int destination,
        int chunk,
        List<Integer> missing,
        List<Integer> doubled,
        List<Integer> foreign) {
    /** Copies the lists. */
    public Fault {
        missing = List.copyOf(missing);
        doubled = List.copyOf(doubled);
        foreign = List.copyOf(foreign);
    }

    @Override
    public String toString() {
        return "rank %s, channel %s, chunk %s%s%s:%s%s%s"
                .formatted(
                        rank,
                        channel,
                        chunk,
                        source < 0 ? "" : " of rank " + source,
                        destination < 0 ? "" : " for rank " + destination,
                        missing.isEmpty() ? "" : " lacks " + missing,
                        doubled.isEmpty() ? "" : " has twice " + doubled,
                        foreign.isEmpty() ? "" : " has wrongly " + foreign);
    }
}

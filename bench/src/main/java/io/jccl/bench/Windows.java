package io.jccl.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Decides when a path is warm: once the last windows of operations took nearly the same time, with
 * nothing left to compile, and the JVM has seen the calls by which it chooses what to optimize.
 * Before that the times may agree too, since code that counts its calls is slow but steady.
 */
final class Windows {
    /** Windows that must agree. */
    static final int AGREEING = 3;

    /** How far one may be from their median. */
    static final double TOLERANCE = 0.05;

    private final long fewest;
    private final List<Double> costs = new ArrayList<>();
    private long operations;

    /**
     * None so far.
     *
     * @param fewest operations before the windows count
     */
    Windows(long fewest) {
        this.fewest = fewest;
    }

    /**
     * Adds one.
     *
     * @param cost time of an operation in it, in any unit
     * @param operations how many it had
     * @param compiled whether the compiler had nothing to do before it
     */
    void add(double cost, long operations, boolean compiled) {
        if (!compiled) {
            costs.clear();
        }
        costs.add(cost);
        this.operations += operations;
    }

    /** Operations of all windows. */
    long operations() {
        return operations;
    }

    /** Whether the path is warm. */
    boolean agree() {
        if (costs.size() < AGREEING || operations < fewest) {
            return false;
        }
        double[] last =
                costs.subList(costs.size() - AGREEING, costs.size()).stream()
                        .mapToDouble(Double::doubleValue)
                        .sorted()
                        .toArray();
        double median = last[AGREEING / 2];
        return Arrays.stream(last).allMatch(c -> Math.abs(c - median) <= TOLERANCE * median);
    }
}

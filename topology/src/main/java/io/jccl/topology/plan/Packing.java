package io.jccl.topology.plan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Packs structures (rings, trees) into resources: maximises the sum of rates x so that for every
 * resource the sum over structures of (uses * x) is at most its capacity.
 *
 * <p>A linear program with a column for every structure, of which there are far too many to write
 * down. So it is solved by the revised simplex method with column generation (Gilmore and Gomory,
 * Operations Research 9, 1961): given the dual prices of the resources, the {@link Oracle} finds
 * the structure that costs least; one that costs less than 1 enters the basis, and if there is none
 * the packing is optimal. A basic solution has at most as many structures as there are resources.
 */
final class Packing {
    /** Finds cheap structures. */
    interface Oracle {
        /**
         * The structure that costs least.
         *
         * @param price by resource
         * @return the structure, or null if there is none
         */
        int @Nullable [] cheapest(double[] price);

        /** The resources that a structure uses, with repetitions. */
        int[] uses(int[] structure);
    }

    /** A structure and its rate. */
    record Item(int[] structure, double rate) {}

    private static final double EPSILON = 1e-9;

    private final double[] capacity;
    private final Oracle oracle;
    private final int m;

    /** Row of a resource, and back. */
    private final int[] rowOf;

    private final int[] resourceOf;

    private final double[][] inverse;
    private final double[] value;
    private final double[] dual;
    private final int[] @Nullable [] basis;

    private Packing(double[] capacity, Oracle oracle) {
        this.capacity = capacity;
        this.oracle = oracle;
        rowOf = new int[capacity.length];
        resourceOf = new int[capacity.length];
        int rows = 0;
        for (int i = 0; i < capacity.length; i++) {
            if (capacity[i] > 0) {
                rowOf[i] = rows;
                resourceOf[rows++] = i;
            }
        }
        m = rows;
        inverse = new double[m][m];
        value = new double[m];
        dual = new double[m];
        basis = new int[m][];
        for (int i = 0; i < m; i++) {
            inverse[i][i] = 1;
            // Unequal capacities prevent the simplex method from cycling.
            value[i] = capacity[resourceOf[i]] * (1 + 1e-7 * (i * 0.618034 % 1));
        }
    }

    /**
     * Packs.
     *
     * @param capacity by resource; 0 for one that no structure uses
     * @param oracle what to pack
     * @param target a total at which to stop: no packing has more
     * @param rounds most structures to try
     * @return the structures with a rate above 0
     */
    static List<Item> pack(double[] capacity, Oracle oracle, double target, int rounds) {
        Packing p = new Packing(capacity, oracle);
        p.solve(target, rounds);
        return p.result();
    }

    private void solve(double target, int rounds) {
        double[] price = new double[capacity.length];
        double[] column = new double[m];
        double[] direction = new double[m];
        double total = 0;
        for (int round = 0; round < rounds && total < target * (1 - EPSILON); round++) {
            Arrays.fill(column, 0);
            int[] structure = null;
            double gain;
            int slack = 0;
            for (int i = 1; i < m; i++) {
                slack = dual[i] < dual[slack] ? i : slack;
            }
            if (dual[slack] < -EPSILON) {
                gain = -dual[slack];
                column[slack] = 1;
            } else {
                for (int i = 0; i < m; i++) {
                    int r = resourceOf[i];
                    // A small price for each use: of equally cheap structures, the one with the
                    // fewest uses is taken.
                    price[r] = Math.max(0, dual[i]) + 1e-7 / capacity[r];
                }
                structure = oracle.cheapest(price);
                if (structure == null) {
                    return;
                }
                gain = 1;
                for (int r : oracle.uses(structure)) {
                    column[rowOf[r]]++;
                    gain -= dual[rowOf[r]];
                }
                if (gain < 1e-6) {
                    return;
                }
            }
            int leave = -1;
            double step = Double.POSITIVE_INFINITY;
            for (int i = 0; i < m; i++) {
                double d = 0;
                double[] row = inverse[i];
                for (int j = 0; j < m; j++) {
                    d += row[j] * column[j];
                }
                direction[i] = d;
                if (d > EPSILON && value[i] < step * d) {
                    step = Math.max(0, value[i] / d);
                    leave = i;
                }
            }
            if (leave < 0) {
                return;
            }
            pivot(leave, step, gain, direction);
            basis[leave] = structure;
            total += step * gain;
        }
    }

    private void pivot(int leave, double step, double gain, double[] direction) {
        double[] pivot = inverse[leave];
        double scale = 1 / direction[leave];
        for (int j = 0; j < m; j++) {
            pivot[j] *= scale;
            dual[j] += gain * pivot[j];
        }
        for (int i = 0; i < m; i++) {
            double d = direction[i];
            if (i != leave && d != 0) {
                double[] row = inverse[i];
                for (int j = 0; j < m; j++) {
                    row[j] -= d * pivot[j];
                }
                value[i] -= d * step;
            }
        }
        value[leave] = step;
    }

    /** The rates for the true capacities. */
    private List<Item> result() {
        List<Item> items = new ArrayList<>();
        for (int i = 0; i < m; i++) {
            int[] structure = basis[i];
            if (structure == null) {
                continue;
            }
            double rate = 0;
            for (int j = 0; j < m; j++) {
                rate += inverse[i][j] * capacity[resourceOf[j]];
            }
            if (rate > 1e-6) {
                items.add(new Item(structure, rate));
            }
        }
        return fit(items, capacity, oracle);
    }

    /** Scales rates down, by what rounding takes, so that no resource is over-used. */
    static List<Item> fit(List<Item> items, double[] capacity, Oracle oracle) {
        double[] load = new double[capacity.length];
        for (Item item : items) {
            for (int r : oracle.uses(item.structure)) {
                load[r] += item.rate;
            }
        }
        double scale = 1;
        for (int r = 0; r < load.length; r++) {
            scale = load[r] > capacity[r] ? Math.min(scale, capacity[r] / load[r]) : scale;
        }
        List<Item> fit = new ArrayList<>(items.size());
        for (Item item : items) {
            double rate = scale > 1 - 1e-7 ? item.rate : item.rate * scale;
            fit.add(new Item(item.structure, Math.rint(rate * 1e6) / 1e6));
        }
        return fit;
    }

    /** Keeps the fastest of many structures, and gives these the bandwidth of the others. */
    static List<Item> few(List<Item> items, double[] capacity, Oracle oracle) {
        if (items.size() <= Rings.MAX_CHANNELS) {
            return items;
        }
        List<Item> sorted = new ArrayList<>(items);
        sorted.sort((x, y) -> Double.compare(y.rate, x.rate));
        double[] left = capacity.clone();
        List<Item> kept = sorted.subList(0, Rings.MAX_CHANNELS);
        for (Item item : kept) {
            for (int r : oracle.uses(item.structure)) {
                left[r] -= item.rate;
            }
        }
        List<Item> few = new ArrayList<>();
        for (Item item : kept) {
            int[] uses = oracle.uses(item.structure);
            int[] load = new int[left.length];
            for (int r : uses) {
                load[r]++;
            }
            double more = Double.POSITIVE_INFINITY;
            for (int r : uses) {
                more = Math.min(more, Math.max(0, left[r]) / load[r]);
            }
            for (int r : uses) {
                left[r] -= more;
            }
            few.add(new Item(item.structure, item.rate + more));
        }
        return few;
    }
}

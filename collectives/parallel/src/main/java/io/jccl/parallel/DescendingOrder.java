package io.jccl.parallel;

import java.util.Arrays;

/**
 * Sorts indices of numbers from 0 to 1 in descending order of the numbers: a stable radix sort with
 * preallocated memory. The bits of such floats are ordered like the numbers and fit into 30 bits.
 */
final class DescendingOrder {
    private static final int BITS = 10;
    private static final int MASK = (1 << BITS) - 1;
    private static final int ONE = Float.floatToRawIntBits(1);

    private final int[] keys;
    private int[] order;
    private int[] spare;
    private final int[] places = new int[MASK + 1];
    private int size;

    DescendingOrder(int most) {
        keys = new int[most];
        order = new int[most];
        spare = new int[most];
    }

    /** Removes all numbers. */
    void begin() {
        size = 0;
    }

    /** Adds the next number. */
    void add(float number) {
        order[size] = size;
        keys[size++] = ONE - Float.floatToRawIntBits(number);
    }

    /** Sorts. */
    void sort() {
        for (int shift = 0; shift < 3 * BITS; shift += BITS) {
            Arrays.fill(places, 0);
            for (int i = 0; i < size; i++) {
                places[keys[i] >>> shift & MASK]++;
            }
            int at = 0;
            for (int k = 0; k <= MASK; k++) {
                int n = places[k];
                places[k] = at;
                at += n;
            }
            for (int i = 0; i < size; i++) {
                int index = order[i];
                spare[places[keys[index] >>> shift & MASK]++] = index;
            }
            int[] sorted = spare;
            spare = order;
            order = sorted;
        }
    }

    /** The index of the number at a position of the order. */
    int get(int place) {
        return order[place];
    }
}

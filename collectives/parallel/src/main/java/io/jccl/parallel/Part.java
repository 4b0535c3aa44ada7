package io.jccl.parallel;

/**
 * A contiguous share of a range that is split as evenly as possible; the first shares get one more.
 * Used to split rows, columns and tokens over ranks.
 *
 * @param from index of the first element
 * @param count number of elements, possibly 0
 */
public record Part(long from, long count) {
    /**
     * Computes one share.
     *
     * @param all size of the range
     * @param index index of the share, such as a rank
     * @param parts number of shares, such as the number of ranks
     * @return the share
     * @throws IllegalArgumentException if all is negative, or index is not in 0 to parts - 1
     */
    public static Part of(long all, int index, int parts) {
        if (all < 0 || index < 0 || index >= parts) {
            throw new IllegalArgumentException(
                    ("share %s of %s in %s was asked for, expected 0 to parts - 1 and 0 or more"
                                    + " things")
                            .formatted(index, parts, all));
        }
        long least = all / parts;
        long more = all % parts;
        return new Part(least * index + Math.min(index, more), least + (index < more ? 1 : 0));
    }
}

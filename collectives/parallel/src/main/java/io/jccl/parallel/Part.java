package io.jccl.parallel;

/**
 * The contiguous share of one of several in a number of things: as equal as can be, the first ones
 * get one more. So rows, columns and tokens are split over ranks.
 *
 * @param from index of the first
 * @param count how many, possibly 0
 */
public record Part(long from, long count) {
    /**
     * One share.
     *
     * @param all how many things there are
     * @param index whose share, such as a rank
     * @param parts how many shares, such as the number of ranks
     * @return the share
     * @throws IllegalArgumentException if all is negative, or index does not lie in 0 to parts - 1
     */
    public static Part of(long all, int index, int parts) {
        if (all < 0 || index < 0 || index >= parts) {
            throw new IllegalArgumentException(
                    "share "
                            + index
                            + " of "
                            + parts
                            + " in "
                            + all
                            + " was asked for, expected 0 to parts - 1 and 0 or more things");
        }
        long least = all / parts;
        long more = all % parts;
        return new Part(least * index + Math.min(index, more), least + (index < more ? 1 : 0));
    }
}

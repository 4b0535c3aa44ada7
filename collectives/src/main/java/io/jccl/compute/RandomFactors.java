package io.jccl.compute;

/**
 * Random factors of elements, each a function of a row's place and a column: uniform numbers from 1
 * - jitter to 1 + jitter, times 0 with the probability of dropout, else times {@code 1 / (1 -
 * dropout)}. The random number of an element is SplitMix64's mixing of a stream and of {@code place
 * x columns + column}.
 *
 * @param jitter largest change of a factor, 0 to less than 1
 * @param jitterStream any number: other streams give unrelated numbers
 * @param dropout probability of 0, 0 to less than 1
 * @param dropoutStream likewise
 * @param columns elements of a whole row, 1 or more
 * @param firstColumn index of the first column present, if a matrix is split by columns
 */
public record RandomFactors(
        double jitter,
        long jitterStream,
        double dropout,
        long dropoutStream,
        long columns,
        long firstColumn) {
    /**
     * Checks the numbers.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public RandomFactors {
        share("jitter", jitter);
        share("dropout", dropout);
        if (columns < 1 || firstColumn < 0 || firstColumn >= columns) {
            throw new IllegalArgumentException(
                    ("the first column is %s of %s, expected 1 column or more, and the first one"
                                    + " among them")
                            .formatted(firstColumn, columns));
        }
    }

    private static void share(String name, double value) {
        if (!(value >= 0 && value < 1)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected 0 to less than 1");
        }
    }
}

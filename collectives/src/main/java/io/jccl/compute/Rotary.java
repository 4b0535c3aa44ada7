package io.jccl.compute;

/**
 * Rotary embedding (arXiv 2104.09864): element i of a head of a row is rotated with element {@code
 * i + size / 2} by an angle that grows with the row's position, which is its number modulo the
 * context.
 *
 * @param heads number of heads to rotate, from the start of a row; 1 or more
 * @param size elements of a head, an even number
 * @param context rows of a sequence, 1 or more
 * @param rowWidth elements of a row, at least those of the heads
 */
public record Rotary(int heads, int size, int context, long rowWidth) {
    /**
     * Checks the numbers.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Rotary {
        Arguments.atLeastOne("heads", heads);
        Arguments.atLeastOne("context", context);
        if (size < 2 || size % 2 != 0) {
            throw new IllegalArgumentException(
                    "the size of a head is " + size + ", expected an even number above 0");
        }
        if (rowWidth < (long) heads * size) {
            throw new IllegalArgumentException(
                    "a row has %s elements, expected at least those of %s heads of %s"
                            .formatted(rowWidth, heads, size));
        }
    }

    /**
     * The table that {@link Layers#rotate} reads: for each position the cosines, then the sines, of
     * the angles {@code position base^(-2 i / size)}, rounded from float64.
     *
     * @param base 10000 in most models
     * @return context x size numbers
     */
    public float[] angles(double base) {
        float[] all = new float[Math.multiplyExact(context, size)];
        int half = size / 2;
        for (int p = 0; p < context; p++) {
            for (int i = 0; i < half; i++) {
                double angle = p * Math.pow(base, -2.0 * i / size);
                all[p * size + i] = (float) Math.cos(angle);
                all[p * size + half + i] = (float) Math.sin(angle);
            }
        }
        return all;
    }
}

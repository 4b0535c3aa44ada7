package io.jccl.bench.probe;

import io.jccl.device.DataType;
import java.util.Locale;

/** Data types of matrix products in hardware comparisons. */
public enum MatrixType {
    /** float32 throughout. */
    FLOAT32(DataType.FLOAT32),
    /** float32 in memory, rounded to 11 bits of precision before multiplication. */
    TF32(DataType.FLOAT32),
    /** bfloat16 factors, float32 sums. */
    BFLOAT16(DataType.BFLOAT16),
    /** float16 factors, float32 sums. */
    FLOAT16(DataType.FLOAT16),
    /** float64 throughout. */
    FLOAT64(DataType.FLOAT64);

    private final DataType factors;

    MatrixType(DataType factors) {
        this.factors = factors;
    }

    /** Element type of the factors. */
    DataType factors() {
        return factors;
    }

    /** Element type of the result. */
    DataType result() {
        return this == FLOAT64 ? DataType.FLOAT64 : DataType.FLOAT32;
    }

    /** Memory of a product of n x n matrices. */
    long bytes(long n) {
        return n * n * (2L * factors.size() + result().size());
    }

    /** The name on the command line and in JSON. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

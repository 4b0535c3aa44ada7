package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.internal.Waits;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Products with lengths that are not multiples of what tensor cores load at a time. */
class RoundedMatmulTest {
    private static final int LONG = 4099;

    private final Device host = Device.host();
    private final Stream stream = host.defaultStream();

    /** The products that were computed: rows, inner length, columns. */
    private final List<List<Long>> computed = new ArrayList<>();

    @Test
    void longOnesAreComputedInPartsOfFullSpeed() {
        equalsOneProduct(LONG, 3, 5, false);
        assertEquals(List.of(List.of(4096L, 3L, 5L), List.of(3L, 3L, 5L)), computed);
        equalsOneProduct(5, 3, LONG, false);
        assertEquals(List.of(List.of(5L, 3L, 4096L), List.of(5L, 3L, 3L)), computed);
        equalsOneProduct(3, LONG, 5, true);
        assertEquals(List.of(List.of(3L, 4096L, 5L), List.of(3L, 3L, 5L)), computed);
        equalsOneProduct(4104, 3, 5, false);
        assertEquals(List.of(List.of(4104L, 3L, 5L)), computed);
        equalsOneProduct(7, 9, 11, true);
        assertEquals(List.of(List.of(7L, 9L, 11L)), computed);
    }

    /** Memory for a larger factor replaces memory that work of the stream may still need. */
    @Test
    void memoryIsReplacedWhenTheStreamNoLongerNeedsIt() {
        try (Owned owned = new Owned();
                Matmul matmul = Matmul.of(host, 1);
                Stream late = host.newStream();
                Buffer small = integers(4, 3);
                Buffer large = integers(16, 3);
                Buffer c = integers(16, 3)) {
            Matmul rounded = new RoundedMatmul(matmul, DataType.BFLOAT16, host, owned);
            late.launchHostFunction(() -> Waits.park(100_000_000));
            for (Buffer factor : List.of(small, large)) {
                int n = (int) Math.sqrt((double) factor.count());
                Matrix m = Matrix.of(factor, n, n);
                rounded.multiply(m, m, Matrix.of(c, 0, n, n, n), 0, late);
            }
            late.synchronize();
        }
    }

    /** Small integers: every sum is exact in any order. */
    private void equalsOneProduct(int m, int k, int n, boolean transposed) {
        computed.clear();
        int pitch = n + 6;
        try (Owned owned = new Owned();
                Matmul matmul = Matmul.of(host, 1);
                Buffer a = integers((long) m * k, 5);
                Buffer b = integers((long) k * n, 7);
                Buffer c = integers((long) m * pitch, 3);
                Buffer once = integers((long) m * pitch, 3)) {
            Matrix left = transposed ? Matrix.of(a, k, m).transposed() : Matrix.of(a, m, k);
            Matrix right = Matrix.of(b, k, n);
            new RoundedMatmul(recording(matmul), DataType.BFLOAT16, host, owned)
                    .multiply(left, right, Matrix.of(c, 0, m, n, pitch), 1, stream);
            matmul.multiply(left, right, Matrix.of(once, 0, m, n, pitch), 1, stream);
            stream.synchronize();
            for (long i = 0; i < c.count(); i++) {
                assertEquals(once.get(i), c.get(i), m + " x " + k + " x " + n + " at " + i);
            }
        }
    }

    private Buffer integers(long count, int below) {
        Buffer all = host.allocate(DataType.FLOAT32, count);
        for (long i = 0; i < count; i++) {
            all.set(i, (int) (i % below) - 1);
        }
        return all;
    }

    private Matmul recording(Matmul matmul) {
        return new Matmul() {
            @Override
            public void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
                assertTrue(a.dataType() == DataType.BFLOAT16 && b.dataType() == a.dataType());
                computed.add(List.of(c.rows(), a.columns(), c.columns()));
                matmul.multiply(a, b, c, beta, stream);
            }

            @Override
            public void close() {}
        };
    }
}

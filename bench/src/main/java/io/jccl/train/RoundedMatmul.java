package io.jccl.train;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.util.IdentityHashMap;
import org.jspecify.annotations.Nullable;

/**
 * Products for the tensor cores of a GPU: float32 factors are rounded to 16 bits before they are
 * multiplied, sums are float32, as in PyTorch's autocast.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class RoundedMatmul implements Matmul {
    /**
     * Elements of 16 bits in 16 bytes. Tensor cores multiply at full speed what begins at a
     * multiple of that and is as long: cuBLAS, "Tensor Core Usage". Products with a vocabulary of
     * 50,257 took six times as long on an H200.
     */
    static final int ALIGNED = 8;

    /**
     * Where rounded factors are: those of any product, one that several products in a row share,
     * and one of products that others are computed between.
     */
    private enum Place {
        LEFT,
        RIGHT,
        SHARED,
        KEPT
    }

    /** Lengths from here on are worth a second product. */
    private static final long LONG = 4096;

    private final Matmul matmul;
    private final Compute compute;
    private final DataType type;
    private final Device device;
    private final Owned owned;

    /** Of each stream, since products of several run at the same time. */
    private final IdentityHashMap<Stream, @Nullable Buffer[]> rounded = new IdentityHashMap<>();

    /**
     * Creates an instance.
     *
     * @param matmul computes the products; closed by the caller
     * @param type of the rounded factors
     * @param device a GPU
     * @param owned owner of the memory for them, which is as large as the largest ones need
     */
    RoundedMatmul(Matmul matmul, DataType type, Device device, Owned owned) {
        this.matmul = matmul;
        this.type = type;
        this.device = device;
        this.owned = owned;
        this.compute = owned.add(Compute.of(device));
    }

    /**
     * The type that factors of a model's products are rounded to, and its attention's.
     *
     * @param device where it computes
     * @param precision of its parameters
     * @return null for none: on the host, which has no faster products of 16 bits, and on GPUs
     *     whose tensor cores do not support the type (bfloat16 needs compute capability 8.0)
     */
    static @Nullable DataType type(Device device, DataType precision) {
        if (precision == DataType.FLOAT32 || device.kind() != Device.Kind.CUDA) {
            return null;
        }
        int oldest = precision == DataType.BFLOAT16 ? 8 : 7;
        return Cuda.info(device).computeMajor() < oldest ? null : precision;
    }

    /** The products with unrounded factors. */
    Matmul exact() {
        return matmul;
    }

    /** A factor of the next products, until the next call. */
    Matrix shared(Matrix factor, Stream stream) {
        return round(factor, Place.SHARED, stream);
    }

    /** A factor of products that others are computed between, until the next call. */
    Matrix kept(Matrix factor, Stream stream) {
        return round(factor, Place.KEPT, stream);
    }

    @Override
    public void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
        Matrix left = round(a, Place.LEFT, stream);
        aligned(left, round(b, Place.RIGHT, stream), c, beta, stream);
    }

    /** In parts whose lengths tensor cores like, and the rest. */
    private void aligned(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
        long rows = part(c.rows());
        long columns = part(c.columns());
        long inner = part(a.columns());
        if (rows < c.rows()) {
            long rest = c.rows() - rows;
            aligned(a.rows(0, rows), b, c.rows(0, rows), beta, stream);
            aligned(a.rows(rows, rest), b, c.rows(rows, rest), beta, stream);
        } else if (columns < c.columns()) {
            long rest = c.columns() - columns;
            aligned(a, b.columns(0, columns), c.columns(0, columns), beta, stream);
            aligned(a, b.columns(columns, rest), c.columns(columns, rest), beta, stream);
        } else if (inner < a.columns()) {
            long rest = a.columns() - inner;
            aligned(a.columns(0, inner), b.rows(0, inner), c, beta, stream);
            aligned(a.columns(inner, rest), b.rows(inner, rest), c, 1, stream);
        } else {
            matmul.multiply(a, b, c, beta, stream);
        }
    }

    /** The aligned part of a length; all of one for which a second product would not pay. */
    private static long part(long length) {
        return length < LONG ? length : length / ALIGNED * ALIGNED;
    }

    private Matrix round(Matrix factor, Place place, Stream stream) {
        if (factor.dataType() != DataType.FLOAT32) {
            return factor;
        }
        Buffer from = factor.span();
        @Nullable Buffer[] memory =
                rounded.computeIfAbsent(stream, s -> new Buffer[Place.values().length]);
        Buffer all = memory[place.ordinal()];
        if (all == null || all.count() < from.count()) {
            if (all != null) {
                stream.synchronize(); // which may still read it
                owned.close(all);
            }
            all = owned.allocate(device, type, from.count());
            memory[place.ordinal()] = all;
        }
        Buffer to = all.slice(0, from.count());
        compute.cast(from, to, stream);
        return factor.over(to);
    }

    /** Does nothing: its memory is the owner's. */
    @Override
    public void close() {}
}

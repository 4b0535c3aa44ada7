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
    /** Where rounded factors are: those of any product, and one that several products share. */
    private enum Place {
        LEFT,
        RIGHT,
        SHARED
    }

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

    @Override
    public void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
        Matrix left = round(a, Place.LEFT, stream);
        matmul.multiply(left, round(b, Place.RIGHT, stream), c, beta, stream);
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

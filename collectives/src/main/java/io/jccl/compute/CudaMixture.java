package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaKernel;
import io.jccl.device.cuda.CudaStream;
import org.jspecify.annotations.Nullable;

/** Launches the kernels of mixture.h. */
final class CudaMixture implements Mixture {
    private final CudaCompute compute;
    private final CudaKernel scale;
    private final CudaKernel addNormal;
    private final CudaKernel mix;
    private final CudaKernel scaleByShare;
    private final CudaKernel mixBackward;
    private final CudaKernel sum;
    private final CudaKernel addSums;

    CudaMixture(CudaCompute compute) {
        this.compute = compute;
        scale = compute.kernel("scale_randomly");
        addNormal = compute.kernel("add_normal");
        mix = compute.kernel("mix_pair");
        scaleByShare = compute.kernel("scale_by_share");
        mixBackward = compute.kernel("mix_pair_backward");
        sum = compute.kernel("mix_pair_sums");
        addSums = compute.kernel("add_pair_sums");
    }

    @Override
    public void scaleRandomly(
            RandomFactors f,
            Buffer source,
            int width,
            @Nullable Buffer places,
            long place,
            Buffer target,
            Stream stream) {
        scale.launch()
                .put(source)
                .put(source.count())
                .put((long) width)
                .put(places)
                .put(place)
                .put(f.columns())
                .put(f.firstColumn())
                .put(f.jitter())
                .put(f.jitterStream())
                .put(f.dropout())
                .put(f.dropoutStream())
                .put(target)
                .run(compute.on(stream), compute.blocks(source.count()));
    }

    @Override
    public void addNormal(double deviation, long from, long first, Buffer x, Stream stream) {
        addNormal
                .launch()
                .put(x)
                .put(x.count())
                .put(deviation)
                .put(from)
                .put(first)
                .run(compute.on(stream), compute.blocks(x.count()));
    }

    @Override
    public void mix(
            Buffer x,
            int width,
            Buffer coefficient,
            Buffer bias,
            Buffer a,
            Buffer b,
            Buffer difference,
            Buffer share,
            Stream stream) {
        mix.launch()
                .put(x)
                .put(share.count())
                .put((long) width)
                .put(coefficient)
                .put(bias)
                .put(a)
                .put(b)
                .put(difference)
                .put(share)
                .run(compute.on(stream), compute.blocksOf(share.count()));
    }

    @Override
    public void scaleByShare(
            Buffer source, int width, Buffer share, boolean rest, Buffer target, Stream stream) {
        scaleByShare
                .launch()
                .put(source)
                .put(source.count())
                .put((long) width)
                .put(share)
                .put(rest ? 1 : 0)
                .put(target)
                .run(compute.on(stream), compute.blocks(source.count()));
    }

    @Override
    public void mixBackward(
            Buffer x,
            int width,
            Buffer coefficient,
            Buffer gradient,
            Buffer difference,
            Buffer share,
            Buffer ofX,
            Buffer sums,
            Buffer scratch,
            Stream stream) {
        CudaStream s = compute.on(stream);
        long rows = share.count();
        mixBackward
                .launch()
                .put(rows)
                .put((long) width)
                .put(coefficient)
                .put(gradient)
                .put(difference)
                .put(share)
                .put(ofX)
                .put(scratch)
                .run(s, Math.max(1, compute.blocksOf(rows)));
        sum.launch()
                .put(x)
                .put(rows)
                .put((long) width)
                .put(scratch)
                .put(sums)
                .run(s, compute.blocksOf(width + 1L));
    }

    @Override
    public void addSums(Buffer sums, Buffer coefficient, Buffer bias, Stream stream) {
        addSums.launch()
                .put(sums)
                .put(sums.count() - 1)
                .put(coefficient)
                .put(bias)
                .run(compute.on(stream), compute.blocks(sums.count()));
    }
}

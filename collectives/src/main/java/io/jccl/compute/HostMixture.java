package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.kernel.MixtureLoops;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** The loops of {@link MixtureLoops}, on the thread of the stream. */
final class HostMixture implements Mixture {
    @Override
    public void scaleRandomly(
            RandomFactors f,
            Buffer source,
            int width,
            @Nullable Buffer places,
            long place,
            Buffer target,
            Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment of = places == null ? null : places.asSegment();
        MemorySegment to = target.asSegment();
        long rows = source.count() / width;
        HostCompute.enqueue(
                stream,
                () ->
                        MixtureLoops.scale(
                                from,
                                rows,
                                width,
                                of,
                                place,
                                f.columns(),
                                f.firstColumn(),
                                f.jitter(),
                                f.jitterStream(),
                                f.dropout(),
                                f.dropoutStream(),
                                to));
    }

    @Override
    public void addNormal(double deviation, long from, long first, Buffer x, Stream stream) {
        MemorySegment to = x.asSegment();
        long count = x.count();
        HostCompute.enqueue(
                stream, () -> MixtureLoops.addNormal(to, count, deviation, from, first));
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
        long rows = x.count() / width;
        HostCompute.enqueue(
                stream,
                () ->
                        MixtureLoops.mix(
                                x.asSegment(),
                                rows,
                                width,
                                coefficient.asSegment(),
                                bias.asSegment(),
                                a.asSegment(),
                                b.asSegment(),
                                difference.asSegment(),
                                share.asSegment()));
    }

    @Override
    public void scaleByShare(
            Buffer source, int width, Buffer share, boolean rest, Buffer target, Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment by = share.asSegment();
        MemorySegment to = target.asSegment();
        long rows = source.count() / width;
        HostCompute.enqueue(
                stream, () -> MixtureLoops.scaleByShare(from, rows, width, by, rest, to));
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
        long rows = x.count() / width;
        HostCompute.enqueue(
                stream,
                () ->
                        MixtureLoops.mixBackward(
                                x.asSegment(),
                                rows,
                                width,
                                coefficient.asSegment(),
                                gradient.asSegment(),
                                difference.asSegment(),
                                share.asSegment(),
                                ofX.asSegment(),
                                sums.asSegment()));
    }

    @Override
    public void addSums(Buffer sums, Buffer coefficient, Buffer bias, Stream stream) {
        MemorySegment from = sums.asSegment();
        MemorySegment matrix = coefficient.asSegment();
        MemorySegment two = bias.asSegment();
        int width = (int) (sums.count() - 1);
        HostCompute.enqueue(stream, () -> MixtureLoops.addSums(from, width, matrix, two));
    }
}

package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.kernel.MixtureLoops;
import org.jspecify.annotations.Nullable;

/** The loops of {@link MixtureLoops}, on the thread of the stream. */
final class HostMixture implements Mixture {
    private final HostCompute compute;

    HostMixture(HostCompute compute) {
        this.compute = compute;
    }

    @Override
    public void scaleRandomly(
            RandomFactors factors,
            Buffer source,
            int width,
            @Nullable Buffer places,
            long place,
            Buffer target,
            Stream stream) {
        compute.task(HostMixture::scaleRandomly)
                .put(source)
                .put(places)
                .put(target)
                .put(source.count() / width)
                .put(width)
                .put(place)
                .of(factors)
                .alone(stream);
    }

    private static void scaleRandomly(HostTask t, int thread, long begin, long end) {
        RandomFactors f = (RandomFactors) t.description();
        MixtureLoops.scale(
                t.memory(0),
                t.number(0),
                t.integer(1),
                t.memoryOrNull(1),
                t.number(2),
                f.columns(),
                f.firstColumn(),
                f.jitter(),
                f.jitterStream(),
                f.dropout(),
                f.dropoutStream(),
                t.memory(2));
    }

    @Override
    public void addNormal(double deviation, long from, long first, Buffer x, Stream stream) {
        compute.task(HostMixture::addNormal)
                .put(x)
                .put(x.count())
                .put(deviation)
                .put(from)
                .put(first)
                .alone(stream);
    }

    private static void addNormal(HostTask t, int thread, long begin, long end) {
        MixtureLoops.addNormal(t.memory(0), t.number(0), t.real(0), t.number(1), t.number(2));
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
        compute.task(HostMixture::mix)
                .put(x)
                .put(coefficient)
                .put(bias)
                .put(a)
                .put(b)
                .put(difference)
                .put(share)
                .put(x.count() / width)
                .put(width)
                .alone(stream);
    }

    private static void mix(HostTask t, int thread, long begin, long end) {
        MixtureLoops.mix(
                t.memory(0),
                t.number(0),
                t.integer(1),
                t.memory(1),
                t.memory(2),
                t.memory(3),
                t.memory(4),
                t.memory(5),
                t.memory(6));
    }

    @Override
    public void scaleByShare(
            Buffer source, int width, Buffer share, boolean rest, Buffer target, Stream stream) {
        compute.task(HostMixture::scaleByShare)
                .put(source)
                .put(share)
                .put(target)
                .put(source.count() / width)
                .put(width)
                .put(rest ? 1 : 0)
                .alone(stream);
    }

    private static void scaleByShare(HostTask t, int thread, long begin, long end) {
        MixtureLoops.scaleByShare(
                t.memory(0), t.number(0), t.integer(1), t.memory(1), t.number(2) != 0, t.memory(2));
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
        compute.task(HostMixture::mixBackward)
                .put(x)
                .put(coefficient)
                .put(gradient)
                .put(difference)
                .put(share)
                .put(ofX)
                .put(sums)
                .put(x.count() / width)
                .put(width)
                .alone(stream);
    }

    private static void mixBackward(HostTask t, int thread, long begin, long end) {
        MixtureLoops.mixBackward(
                t.memory(0),
                t.number(0),
                t.integer(1),
                t.memory(1),
                t.memory(2),
                t.memory(3),
                t.memory(4),
                t.memory(5),
                t.memory(6));
    }

    @Override
    public void addSums(Buffer sums, Buffer coefficient, Buffer bias, Stream stream) {
        compute.task(HostMixture::addSums)
                .put(sums)
                .put(coefficient)
                .put(bias)
                .put(sums.count() - 1)
                .alone(stream);
    }

    private static void addSums(HostTask t, int thread, long begin, long end) {
        MixtureLoops.addSums(t.memory(0), t.integer(0), t.memory(1), t.memory(2));
    }
}

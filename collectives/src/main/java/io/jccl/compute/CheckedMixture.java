package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Checks arguments, the same on every device, and leaves the work to it. */
final class CheckedMixture implements Mixture {
    private static final String SOURCE = "the source";
    private static final String TARGET = "the target";
    private static final String ROWS = "the rows of x";
    private static final String SUMS = "the sums";

    private final Device device;
    private final Mixture work;

    CheckedMixture(Device device, Mixture work) {
        this.device = device;
        this.work = work;
    }

    private void on(Buffer b, String name, DataType type) {
        Arguments.on(device, Objects.requireNonNull(b, name), name);
        Arguments.type(b, name, type);
    }

    private void floats(Buffer b, String name, long count, String of) {
        on(b, name, DataType.FLOAT32);
        Arguments.count(b, name, count, of);
    }

    private void doubles(Buffer b, String name, long count, String of) {
        on(b, name, DataType.FLOAT64);
        Arguments.count(b, name, count, of);
    }

    private static void apart(Buffer written, String name, Buffer other) {
        Arguments.apart(written, name, other, "another buffer of the operation");
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
        on(source, SOURCE, DataType.FLOAT32);
        long rows = Arguments.rows(source, SOURCE, width);
        Arguments.columns(
                "factors",
                /* width= */ factors.columns(),
                factors.firstColumn(),
                /* columns= */ width);
        floats(target, TARGET, source.count(), SOURCE);
        Arguments.sameOrApart(source, SOURCE, target, TARGET);
        if (places != null) {
            floats(places, "the places", 2 * rows, "two for each row of the source");
            apart(target, TARGET, places);
        } else if (place < 0) {
            throw new IllegalArgumentException(
                    "the place of the first row is " + place + ", expected 0 or more");
        }
        if (rows > 0) {
            work.scaleRandomly(factors, source, width, places, place, target, stream);
        }
    }

    @Override
    public void addNormal(double deviation, long from, long first, Buffer x, Stream stream) {
        on(x, "x", DataType.FLOAT32);
        if (!(deviation >= 0 && deviation <= Double.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the deviation is " + deviation + ", expected a finite number, 0 or more");
        }
        if (x.count() > 0) {
            work.addNormal(deviation, from, first, x, stream);
        }
    }

    private long coefficients(Buffer x, int width, Buffer coefficient) {
        on(x, "x", DataType.FLOAT32);
        floats(coefficient, "the coefficient", 2L * width, "twice a row of x");
        return Arguments.rows(x, "x", width);
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
        long rows = coefficients(x, width, coefficient);
        floats(bias, "the bias", 2, "one for each logit");
        floats(a, "a", x.count(), "x");
        floats(b, "b", x.count(), "x");
        floats(difference, "the difference", x.count(), "x");
        floats(share, "the share", rows, ROWS);
        apart(b, "b", x);
        apart(b, "b", coefficient);
        apart(b, "b", bias);
        apart(b, "b", a);
        apart(b, "b", difference);
        apart(b, "b", share);
        apart(difference, "the difference", x);
        apart(difference, "the difference", coefficient);
        apart(difference, "the difference", bias);
        apart(difference, "the difference", a);
        apart(difference, "the difference", share);
        apart(share, "the share", x);
        apart(share, "the share", coefficient);
        apart(share, "the share", bias);
        apart(share, "the share", a);
        if (rows > 0) {
            work.mix(x, width, coefficient, bias, a, b, difference, share, stream);
        }
    }

    @Override
    public void scaleByShare(
            Buffer source, int width, Buffer share, boolean rest, Buffer target, Stream stream) {
        on(source, SOURCE, DataType.FLOAT32);
        long rows = Arguments.rows(source, SOURCE, width);
        floats(share, "the share", rows, "the rows of the source");
        floats(target, TARGET, source.count(), SOURCE);
        Arguments.sameOrApart(source, SOURCE, target, TARGET);
        apart(target, TARGET, share);
        if (rows > 0) {
            work.scaleByShare(source, width, share, rest, target, stream);
        }
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
        long rows = coefficients(x, width, coefficient);
        floats(gradient, "the gradient", x.count(), "x");
        floats(difference, "the difference", x.count(), "x");
        floats(share, "the share", rows, ROWS);
        floats(ofX, "the gradient of x", x.count(), "x");
        doubles(sums, SUMS, width + 1L, "a row of x and one more");
        doubles(scratch, "the scratch", rows, ROWS);
        apart(ofX, "the gradient of x", x);
        apart(ofX, "the gradient of x", coefficient);
        apart(ofX, "the gradient of x", gradient);
        apart(ofX, "the gradient of x", difference);
        apart(ofX, "the gradient of x", share);
        apart(ofX, "the gradient of x", sums);
        apart(ofX, "the gradient of x", scratch);
        apart(sums, SUMS, x);
        apart(sums, SUMS, coefficient);
        apart(sums, SUMS, gradient);
        apart(sums, SUMS, difference);
        apart(sums, SUMS, share);
        apart(sums, SUMS, scratch);
        apart(scratch, "the scratch", x);
        apart(scratch, "the scratch", coefficient);
        apart(scratch, "the scratch", gradient);
        apart(scratch, "the scratch", difference);
        apart(scratch, "the scratch", share);
        work.mixBackward(
                x, width, coefficient, gradient, difference, share, ofX, sums, scratch, stream);
    }

    @Override
    public void addSums(Buffer sums, Buffer coefficient, Buffer bias, Stream stream) {
        on(sums, SUMS, DataType.FLOAT64);
        floats(coefficient, "the coefficient", 2 * (sums.count() - 1), "two for each sum but one");
        floats(bias, "the bias", 2, "one for each logit");
        apart(sums, SUMS, coefficient);
        apart(sums, SUMS, bias);
        apart(bias, "the bias", coefficient);
        work.addSums(sums, coefficient, bias, stream);
    }
}

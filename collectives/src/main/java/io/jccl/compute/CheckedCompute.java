package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Checks arguments, the same on every device, and leaves the work to it. */
final class CheckedCompute implements Compute {
    private final Compute work;
    private final Device device;

    CheckedCompute(Compute work) {
        this.work = work;
        this.device = work.device();
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public void fill(Buffer target, double value, Stream stream) {
        on(target, "the target");
        if (target.count() > 0) {
            work.fill(target, value, stream);
        }
    }

    @Override
    public void cast(Buffer source, Buffer target, Stream stream) {
        on(source, "the source");
        on(target, "the target");
        Arguments.floats(source, "the source");
        Arguments.floats(target, "the target");
        Arguments.count(target, "the target", source.count(), "the source");
        Arguments.apart(source, "the source", target, "the target");
        Arguments.on(device, stream);
        if (source.count() == 0) {
            return;
        }
        if (source.dataType() == target.dataType()) {
            stream.copy(source, target);
        } else {
            work.cast(source, target, stream);
        }
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer target, Stream stream) {
        on(a, "a");
        on(b, "b");
        on(target, "the target");
        Arguments.floats(a, "a");
        Arguments.alike(b, "b", a, "a");
        Arguments.alike(target, "the target", a, "a");
        Arguments.sameOrApart(target, "the target", a, "a");
        Arguments.sameOrApart(target, "the target", b, "b");
        if (a.count() > 0) {
            work.add(a, b, target, stream);
        }
    }

    @Override
    public void scale(Buffer source, double factor, Buffer target, Stream stream) {
        if (floats(source, target)) {
            work.scale(source, factor, target, stream);
        }
    }

    @Override
    public void divide(Buffer source, double divisor, Buffer target, Stream stream) {
        if (floats(source, target)) {
            work.divide(source, divisor, target, stream);
        }
    }

    /** Checks an operation from floats to an equal number of floats; false if there are none. */
    private boolean floats(Buffer source, Buffer target) {
        on(source, "the source");
        on(target, "the target");
        Arguments.floats(source, "the source");
        Arguments.alike(target, "the target", source, "the source");
        Arguments.sameOrApart(target, "the target", source, "the source");
        return source.count() > 0;
    }

    @Override
    public void axpy(double alpha, Buffer x, Buffer y, Stream stream) {
        on(x, "x");
        on(y, "y");
        Arguments.floats(x, "x");
        Arguments.alike(y, "y", x, "x");
        Arguments.apart(x, "x", y, "y");
        if (x.count() > 0) {
            work.axpy(alpha, x, y, stream);
        }
    }

    private void norm(Buffer norm) {
        on(norm, "the norm");
        Arguments.type(norm, "the norm", DataType.FLOAT64);
        if (norm.count() < NORM_COUNT) {
            throw new IllegalArgumentException(
                    "the norm has %s elements, expected Compute.NORM_COUNT, %s"
                            .formatted(norm.count(), NORM_COUNT));
        }
    }

    @Override
    public void sumOfSquares(Buffer x, Buffer norm, boolean add, Stream stream) {
        on(x, "x");
        Arguments.singleOrNarrow(x, "x");
        norm(norm);
        Arguments.apart(x, "x", norm, "the norm");
        if (x.count() > 0 || !add) {
            work.sumOfSquares(x, norm, add, stream);
        }
    }

    @Override
    public void stepControl(Buffer norm, double lossScale, double maxNorm, Stream stream) {
        norm(norm);
        Arguments.scaleAndNorm(lossScale, maxNorm);
        work.stepControl(norm, lossScale, maxNorm, stream);
    }

    @Override
    public void update(
            UpdateFormula update,
            Buffer parameters,
            @Nullable Buffer first,
            @Nullable Buffer second,
            Buffer gradients,
            @Nullable Buffer target,
            double factor,
            @Nullable Buffer norm,
            Stream stream) {
        on(parameters, "parameters");
        Arguments.type(parameters, "parameters", DataType.FLOAT32);
        int moments = update.rule().moments();
        moment(first, "the first moment", moments > 0, parameters, update);
        moment(second, "the second moment", moments > 1, parameters, update);
        on(gradients, "gradients");
        Arguments.singleOrNarrow(gradients, "gradients");
        Arguments.count(gradients, "gradients", parameters.count(), "parameters");
        Arguments.apart(gradients, "gradients", parameters, "parameters");
        Arguments.apart(first, "the first moment", gradients, "gradients");
        Arguments.apart(second, "the second moment", gradients, "gradients");
        Arguments.apart(second, "the second moment", first, "the first moment");
        if (target != null) {
            on(target, "the target");
            Arguments.singleOrNarrow(target, "the target");
            Arguments.count(target, "the target", parameters.count(), "parameters");
            Arguments.apart(target, "the target", parameters, "parameters");
            Arguments.apart(target, "the target", gradients, "gradients");
            Arguments.apart(target, "the target", first, "the first moment");
            Arguments.apart(target, "the target", second, "the second moment");
        }
        if (norm != null) {
            norm(norm);
        }
        if (parameters.count() > 0) {
            work.update(update, parameters, first, second, gradients, target, factor, norm, stream);
        }
    }

    private void moment(
            @Nullable Buffer b,
            String name,
            boolean needed,
            Buffer parameters,
            UpdateFormula update) {
        if ((b != null) != needed) {
            throw new IllegalArgumentException(
                    "%s is %s, but %s keeps %s moments"
                            .formatted(
                                    name,
                                    needed ? "missing" : "given",
                                    update.rule(),
                                    update.rule().moments()));
        }
        if (b != null) {
            on(b, name);
            Arguments.alike(b, name, parameters, "parameters");
            Arguments.apart(b, name, parameters, "parameters");
        }
    }

    private long indexed(Buffer rows, String name, String of, long width, Buffer index) {
        on(index, "the index");
        Arguments.type(index, "the index", DataType.INT32);
        long count = Arguments.rows(rows, name, width);
        Arguments.count(index, "the index", count, of);
        return count;
    }

    private void rows(Buffer source, Buffer target) {
        on(source, "the source");
        on(target, "the target");
        if (source.dataType() != target.dataType()) {
            throw new IllegalArgumentException(
                    "the source is of %s, but the target of %s"
                            .formatted(source.dataType().label(), target.dataType().label()));
        }
        Arguments.apart(source, "the source", target, "the target");
    }

    @Override
    public void gatherRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        rows(source, target);
        Arguments.rows(source, "the source", width);
        Arguments.apart(index, "the index", target, "the target");
        if (indexed(target, "the target", "the rows of the target", width, index) > 0) {
            work.gatherRows(source, width, index, target, stream);
        }
    }

    @Override
    public void scatterRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        rows(source, target);
        Arguments.rows(target, "the target", width);
        Arguments.apart(index, "the index", target, "the target");
        if (indexed(source, "the source", "the rows of the source", width, index) > 0) {
            work.scatterRows(source, width, index, target, stream);
        }
    }

    @Override
    public void copyColumns(
            Buffer source,
            long sourceWidth,
            long sourceColumn,
            Buffer target,
            long targetWidth,
            long targetColumn,
            long columns,
            Stream stream) {
        rows(source, target);
        long rows = Arguments.rows(source, "the source", sourceWidth);
        Arguments.columns("source", sourceWidth, sourceColumn, columns);
        Arguments.columns("target", targetWidth, targetColumn, columns);
        if (Arguments.rows(target, "the target", targetWidth) != rows) {
            throw new IllegalArgumentException(
                    "the target has %s rows, but the source has %s"
                            .formatted(target.count() / targetWidth, rows));
        }
        if (rows > 0) {
            work.copyColumns(
                    source,
                    sourceWidth,
                    sourceColumn,
                    target,
                    targetWidth,
                    targetColumn,
                    columns,
                    stream);
        }
    }

    @Override
    public void spin(Duration duration, Stream stream) {
        Arguments.spin(duration);
        work.spin(duration, stream);
    }

    @Override
    public Layers layers() {
        return work.layers();
    }

    @Override
    public GradientCompression compression() {
        return work.compression();
    }

    @Override
    public Mixture mixture() {
        return work.mixture();
    }

    @Override
    public void close() {
        work.close();
    }

    private void on(Buffer b, String name) {
        Arguments.on(device, Objects.requireNonNull(b, name), name);
    }
}

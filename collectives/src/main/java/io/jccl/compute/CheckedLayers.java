package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Checks arguments, the same on every device, and leaves the work to it. */
final class CheckedLayers implements Layers {
    private static final String X = "x";
    private static final String WEIGHT_GRADIENT = "the gradient of the weight";
    private static final String BIAS_GRADIENT = "the gradient of the bias";
    private static final String GRADIENT = "the gradient";
    private static final String SOURCE = "the source";
    private static final String TARGET = "the target";
    private static final String OUTPUT_GRADIENT = "the gradient of the output";

    private final Device device;
    private final Layers work;

    CheckedLayers(Device device, Layers work) {
        this.device = device;
        this.work = work;
    }

    @Override
    public void norm(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            @Nullable Buffer bias,
            Buffer y,
            Buffer statistics,
            Stream stream) {
        input(x, X);
        long rows = Arguments.rows(x, X, norm.width());
        row(weight, "the weight", norm.width(), x, y);
        row(bias, "the bias", norm.width(), x, y);
        like(y, "y", x, X);
        apart(y, "y", x, X);
        floats(statistics, "statistics", rows * norm.statistics(), "what the rows of x need");
        apart(statistics, "statistics", x, X);
        apart(statistics, "statistics", y, "y");
        apart(statistics, "statistics", weight, "the weight");
        apart(statistics, "statistics", bias, "the bias");
        if (rows > 0) {
            work.norm(norm, x, weight, bias, y, statistics, stream);
        }
    }

    @Override
    public void normBackward(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            Buffer statistics,
            Buffer outputGradient,
            Buffer gradient,
            @Nullable Buffer weightGradient,
            @Nullable Buffer biasGradient,
            Stream stream) {
        input(x, X);
        long rows = Arguments.rows(x, X, norm.width());
        row(weight, "the weight", norm.width(), x, gradient);
        floats(statistics, "statistics", rows * norm.statistics(), "what the rows of x need");
        like(outputGradient, OUTPUT_GRADIENT, x, X);
        like(gradient, GRADIENT, x, X);
        apart(gradient, GRADIENT, x, X);
        apart(gradient, GRADIENT, outputGradient, OUTPUT_GRADIENT);
        apart(gradient, GRADIENT, statistics, "statistics");
        sums(weightGradient, WEIGHT_GRADIENT, norm.width(), outputGradient);
        sums(biasGradient, BIAS_GRADIENT, norm.width(), outputGradient);
        apart(weightGradient, WEIGHT_GRADIENT, x, X);
        apart(weightGradient, WEIGHT_GRADIENT, gradient, GRADIENT);
        apart(weightGradient, WEIGHT_GRADIENT, statistics, "statistics");
        apart(weightGradient, WEIGHT_GRADIENT, weight, "the weight");
        apart(biasGradient, BIAS_GRADIENT, gradient, GRADIENT);
        apart(biasGradient, BIAS_GRADIENT, x, X);
        apart(biasGradient, BIAS_GRADIENT, statistics, "statistics");
        apart(biasGradient, BIAS_GRADIENT, weight, "the weight");
        apart(biasGradient, BIAS_GRADIENT, weightGradient, WEIGHT_GRADIENT);
        if (rows > 0) {
            work.normBackward(
                    norm,
                    x,
                    weight,
                    statistics,
                    outputGradient,
                    gradient,
                    weightGradient,
                    biasGradient,
                    stream);
        }
    }

    @Override
    public void activate(Activation function, Buffer x, Buffer y, Stream stream) {
        Objects.requireNonNull(function, "function");
        input(x, X);
        like(y, "y", x, X);
        Arguments.sameOrApart(x, X, y, "y");
        if (x.count() > 0) {
            work.activate(function, x, y, stream);
        }
    }

    @Override
    public void activateBackward(Activation function, Buffer x, Buffer gradient, Stream stream) {
        Objects.requireNonNull(function, "function");
        input(x, X);
        like(gradient, GRADIENT, x, X);
        apart(gradient, GRADIENT, x, X);
        if (x.count() > 0) {
            work.activateBackward(function, x, gradient, stream);
        }
    }

    @Override
    public void swiglu(Buffer x, int width, Buffer y, Stream stream) {
        gated(x, width, y, "y");
        apart(y, "y", x, X);
        if (x.count() > 0) {
            work.swiglu(x, width, y, stream);
        }
    }

    @Override
    public void swigluBackward(
            Buffer x, int width, Buffer outputGradient, Buffer gradient, Stream stream) {
        gated(x, width, outputGradient, OUTPUT_GRADIENT);
        like(gradient, GRADIENT, x, X);
        apart(gradient, GRADIENT, x, X);
        apart(gradient, GRADIENT, outputGradient, OUTPUT_GRADIENT);
        if (x.count() > 0) {
            work.swigluBackward(x, width, outputGradient, gradient, stream);
        }
    }

    private void gated(Buffer x, int width, Buffer y, String name) {
        Arguments.atLeastOne("width", width);
        input(x, X);
        Arguments.rows(x, X, 2L * width);
        sameType(y, name, x);
        Arguments.count(y, name, x.count() / 2, "half of x");
    }

    @Override
    public void rotate(Rotary rotary, Buffer x, Buffer angles, boolean backward, Stream stream) {
        input(x, X);
        Arguments.rows(x, X, rotary.rowWidth());
        long count = (long) rotary.context() * rotary.size();
        floats(angles, "the angles", count, "the table of the context");
        apart(angles, "the angles", x, X);
        if (x.count() > 0) {
            work.rotate(rotary, x, angles, backward, stream);
        }
    }

    @Override
    public void addBias(Buffer x, Buffer bias, Stream stream) {
        input(x, X);
        sameType(bias, "the bias", x);
        Arguments.rows(x, X, bias.count());
        apart(bias, "the bias", x, X);
        if (x.count() > 0) {
            work.addBias(x, bias, stream);
        }
    }

    @Override
    public void columnSums(Buffer x, Buffer target, Stream stream) {
        input(x, X);
        Arguments.rows(x, X, target.count());
        sums(target, "the target", target.count(), x);
        if (x.count() > 0) {
            work.columnSums(x, target, stream);
        }
    }

    @Override
    public void scatterAddRows(
            Buffer source, int width, Buffer index, Buffer target, Stream stream) {
        input(source, "the source");
        long rows = Arguments.rows(source, "the source", width);
        integers(index, "the index", rows, "the rows of the source");
        floats(target, "the target", target.count(), "the target");
        Arguments.rows(target, "the target", width);
        apart(source, "the source", target, "the target");
        apart(index, "the index", target, "the target");
        if (rows > 0 && target.count() > 0) {
            work.scatterAddRows(source, width, index, target, stream);
        }
    }

    @Override
    public void topK(Buffer x, int width, int k, Buffer values, Buffer indices, Stream stream) {
        input(x, X);
        long rows = Arguments.rows(x, X, width);
        if (k < 1 || k > width) {
            throw new IllegalArgumentException(
                    "k is " + k + ", expected 1 to " + width + ", the width of a row");
        }
        sameType(values, "values", x);
        Arguments.count(values, "values", rows * k, "k times the rows of x");
        integers(indices, "indices", rows * k, "k times the rows of x");
        apart(values, "values", x, X);
        apart(indices, "indices", x, X);
        apart(indices, "indices", values, "values");
        if (rows > 0) {
            work.topK(x, width, k, values, indices, stream);
        }
    }

    @Override
    public void combineRows(
            Buffer source,
            int width,
            @Nullable Buffer start,
            Buffer index,
            @Nullable Buffer weight,
            Buffer target,
            Stream stream) {
        input(source, SOURCE);
        Arguments.rows(source, SOURCE, width);
        sameType(target, TARGET, source);
        long rows = Arguments.rows(target, TARGET, width);
        entries(
                start,
                index,
                rows,
                "the rows of the target",
                "the rows of the target and one more",
                target,
                TARGET);
        if (weight != null) {
            floats(weight, "the weight", index.count(), "the index");
            apart(weight, "the weight", target, TARGET);
        }
        apart(source, SOURCE, target, TARGET);
        if (rows > 0) {
            work.combineRows(source, width, start, index, weight, target, stream);
        }
    }

    @Override
    public void rowDots(
            Buffer x,
            int width,
            @Nullable Buffer start,
            Buffer index,
            Buffer source,
            Buffer dots,
            Stream stream) {
        input(x, X);
        long rows = Arguments.rows(x, X, width);
        sameType(source, SOURCE, x);
        Arguments.rows(source, SOURCE, width);
        floats(dots, "dots", index.count(), "the index");
        entries(start, index, rows, "the rows of x", "the rows of x and one more", dots, "dots");
        apart(dots, "dots", x, X);
        apart(dots, "dots", source, SOURCE);
        if (rows > 0 && index.count() > 0) {
            work.rowDots(x, width, start, index, source, dots, stream);
        }
    }

    /** The entries of a sparse matrix of as many rows. */
    private void entries(
            @Nullable Buffer start,
            Buffer index,
            long rows,
            String of,
            String ofStart,
            Buffer to,
            String name) {
        integers(index, "the index", start == null ? rows : index.count(), of);
        apart(index, "the index", to, name);
        if (start != null) {
            integers(start, "the start", rows + 1, ofStart);
            apart(start, "the start", to, name);
        }
    }

    @Override
    public void crossEntropy(
            Buffer logits,
            int pitch,
            int tokens,
            Buffer labels,
            Buffer losses,
            @Nullable Buffer gradient,
            float scale,
            Stream stream) {
        input(logits, "the logits");
        if (tokens < 1 || pitch < tokens) {
            throw new IllegalArgumentException(
                    "rows have %s tokens and a pitch of %s, expected 1 or more and a pitch that is not less"
                            .formatted(tokens, pitch));
        }
        long rows = Arguments.rows(logits, "the logits", pitch);
        integers(labels, "the labels", rows, "the rows of the logits");
        floats(losses, "the losses", rows, "the rows of the logits");
        apart(losses, "the losses", logits, "the logits");
        apart(losses, "the losses", labels, "the labels");
        if (gradient != null) {
            like(gradient, GRADIENT, logits, "the logits");
            Arguments.sameOrApart(gradient, GRADIENT, logits, "the logits");
            apart(gradient, GRADIENT, losses, "the losses");
            apart(gradient, GRADIENT, labels, "the labels");
        }
        if (rows > 0) {
            work.crossEntropy(logits, pitch, tokens, labels, losses, gradient, scale, stream);
        }
    }

    private void attended(AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums) {
        shape.on(device.kind());
        input(qkv, "qkv");
        String of = "the shape";
        Arguments.count(qkv, "qkv", shape.rows() * shape.rowWidth(), of);
        sameType(out, "the output", qkv);
        Arguments.count(out, "the output", shape.rows() * shape.outputWidth(), of);
        floats(logSums, "the sums", shape.rows() * shape.heads(), of);
    }

    @Override
    public void attention(
            AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums, Stream stream) {
        attended(shape, qkv, out, logSums);
        apart(out, "the output", qkv, "qkv");
        apart(logSums, "the sums", qkv, "qkv");
        apart(logSums, "the sums", out, "the output");
        work.attention(shape, qkv, out, logSums, stream);
    }

    @Override
    public void attentionBackward(
            AttentionShape shape,
            Buffer qkv,
            Buffer out,
            Buffer logSums,
            Buffer outputGradient,
            Buffer scratch,
            Buffer gradient,
            Stream stream) {
        attended(shape, qkv, out, logSums);
        like(outputGradient, OUTPUT_GRADIENT, out, "the output");
        floats(scratch, "the scratch", logSums.count(), "the sums");
        like(gradient, GRADIENT, qkv, "qkv");
        apart(gradient, GRADIENT, qkv, "qkv");
        apart(gradient, GRADIENT, out, "the output");
        apart(gradient, GRADIENT, outputGradient, OUTPUT_GRADIENT);
        apart(gradient, GRADIENT, logSums, "the sums");
        apart(gradient, GRADIENT, scratch, "the scratch");
        apart(scratch, "the scratch", logSums, "the sums");
        apart(scratch, "the scratch", qkv, "qkv");
        apart(scratch, "the scratch", out, "the output");
        apart(scratch, "the scratch", outputGradient, OUTPUT_GRADIENT);
        work.attentionBackward(shape, qkv, out, logSums, outputGradient, scratch, gradient, stream);
    }

    private void on(Buffer b, String name) {
        Arguments.on(device, Objects.requireNonNull(b, name), name);
    }

    private void input(Buffer b, String name) {
        on(b, name);
        Arguments.singleOrNarrow(b, name);
    }

    private void sameType(Buffer b, String name, Buffer model) {
        on(b, name);
        Arguments.type(b, name, model.dataType());
    }

    private void like(Buffer b, String name, Buffer model, String of) {
        on(b, name);
        Arguments.alike(b, name, model, of);
    }

    private void floats(Buffer b, String name, long count, String of) {
        on(b, name);
        Arguments.type(b, name, DataType.FLOAT32);
        Arguments.count(b, name, count, of);
    }

    private void integers(Buffer b, String name, long count, String of) {
        on(b, name);
        Arguments.type(b, name, DataType.INT32);
        Arguments.count(b, name, count, of);
    }

    private void row(@Nullable Buffer b, String name, int width, Buffer x, Buffer target) {
        if (b != null) {
            sameType(b, name, x);
            Arguments.count(b, name, width, "a row");
            apart(b, name, target, "what is written");
        }
    }

    private void sums(@Nullable Buffer b, String name, long width, Buffer x) {
        if (b != null) {
            floats(b, name, width, "a row");
            apart(b, name, x, "what is added");
        }
    }

    private static void apart(@Nullable Buffer a, String nameA, @Nullable Buffer b, String nameB) {
        Arguments.apart(a, nameA, b, nameB);
    }
}

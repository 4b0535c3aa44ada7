package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What the operations of a compute refuse before anything is enqueued. */
class ArgumentsTest extends ComputeTests {
    private static final int COUNT = 8;

    private Buffer floats(Compute c) {
        Buffer b = c.device().allocate(DataType.FLOAT32, COUNT);
        open.add(b);
        return b;
    }

    private static void refused(
            Class<? extends RuntimeException> type, String text, Executable operation) {
        RuntimeException e = assertThrows(type, operation);
        assertTrue(String.valueOf(e.getMessage()).contains(text), e::toString);
    }

    @ParameterizedTest
    @MethodSource("places")
    void closedBuffers(Where where) {
        try (Compute c = where.open();
                Stream s = c.device().newStream()) {
            Buffer b = floats(c);
            Buffer closed = c.device().allocate(DataType.FLOAT32, COUNT);
            Buffer slice = closed.slice(2, COUNT - 2);
            Buffer statistics = floats(c);
            ThinMatrices thin = ThinMatrices.of(b, List.of(new ThinMatrices.Shape(0, 4, 2)));
            thin.close();
            closed.close();
            refused(IllegalStateException.class, "closed", () -> c.fill(closed, 1, s));
            refused(IllegalStateException.class, "closed", () -> c.fill(slice, 1, s));
            refused(IllegalStateException.class, "closed", () -> c.axpy(1, closed, b, s));
            Norm norm = new Norm(Norm.Kind.RMS, COUNT, 1e-6f);
            refused(
                    IllegalStateException.class,
                    "closed",
                    () ->
                            c.layers()
                                    .norm(
                                            norm,
                                            b,
                                            closed,
                                            null,
                                            floats(c),
                                            statistics.slice(0, 1),
                                            s));
            if (c.device().kind() == Device.Kind.CUDA) {
                refused(
                        IllegalStateException.class,
                        "closed",
                        () -> c.compression().normalize(thin, s));
            }
            s.synchronize();
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void aCastWithinATypeTakesStreamsOfItsDeviceOnly(Where where) {
        try (Compute c = where.open()) {
            boolean host = c.device().kind() == Device.Kind.HOST;
            Device other = host ? TestFake.device(0) : Device.host();
            refused(
                    IllegalArgumentException.class,
                    "the stream belongs to",
                    () -> c.cast(floats(c), floats(c), other.defaultStream()));
        }
    }

    @Test
    void arraysOnTheHeapAreApartUnlessOneArray() {
        try (Compute c = Compute.host(1)) {
            Stream s = Device.host().defaultStream();
            float[] values = {1, 2, 3, 4, 5, 6};
            Buffer x = Buffer.wrap(MemorySegment.ofArray(values), DataType.FLOAT32);
            Buffer y = Buffer.wrap(MemorySegment.ofArray(new float[6]), DataType.FLOAT32);
            c.axpy(2, x, y, s);
            assertEquals(12, y.get(5));
            refused(
                    IllegalArgumentException.class,
                    "share memory",
                    () -> c.axpy(2, x.slice(0, 4), x.slice(2, 4), s));
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void whatIsWrittenIsApart(Where where) {
        try (Compute c = where.open()) {
            Stream s = c.device().defaultStream();
            Buffer p = floats(c);
            Buffer g = floats(c);
            Buffer m = floats(c);
            Update adam = new Update(Update.Rule.ADAM, 0, 0.9f, 0.1f, 0.99f, 0.01f, 0.1f, 1, 1e-8f);
            refused(
                    IllegalArgumentException.class,
                    "the second moment and the first moment",
                    () -> c.update(adam, p, m, m, g, null, 1, null, s));
            refused(
                    IllegalArgumentException.class,
                    "the first moment and gradients",
                    () -> c.update(adam, p, g, m, g, null, 1, null, s));
            Norm norm = new Norm(Norm.Kind.LAYER, COUNT, 1e-6f);
            Buffer statistics = floats(c).slice(0, 2);
            Buffer gradient = floats(c);
            Buffer sums = floats(c);
            refused(
                    IllegalArgumentException.class,
                    "the gradient of the bias and the gradient of the weight",
                    () ->
                            c.layers()
                                    .normBackward(
                                            norm, p, null, statistics, g, gradient, sums, sums, s));
            refused(
                    IllegalArgumentException.class,
                    "the gradient of the weight and the gradient",
                    () ->
                            c.layers()
                                    .normBackward(
                                            norm,
                                            p,
                                            null,
                                            statistics,
                                            g,
                                            gradient,
                                            gradient,
                                            null,
                                            s));
            refused(
                    IllegalArgumentException.class,
                    "the target and gradients",
                    () -> c.update(adam, p, m, sums, g, g, 1, null, s));
            refused(
                    IllegalArgumentException.class,
                    "the target and the first moment",
                    () -> c.update(adam, p, m, sums, g, m, 1, null, s));
            refused(
                    IllegalArgumentException.class,
                    "the target and the second moment",
                    () -> c.update(adam, p, m, sums, g, sums, 1, null, s));
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void aNormWritesNeitherItsWeightNorItsBias(Where where) {
        try (Compute c = where.open()) {
            Stream s = c.device().defaultStream();
            Layers l = c.layers();
            Buffer x = floats(c);
            Buffer y = floats(c);
            Buffer g = floats(c);
            Buffer w = floats(c).slice(0, 2);
            Buffer k = floats(c).slice(0, 4);
            Norm norm = new Norm(Norm.Kind.RMS, 2, 1e-6f);
            Buffer part = k.slice(0, 2);
            refused(
                    IllegalArgumentException.class,
                    "statistics and the weight",
                    () -> l.norm(norm, x, part, null, y, k, s));
            refused(
                    IllegalArgumentException.class,
                    "statistics and the bias",
                    () -> l.norm(norm, x, w, part, y, k, s));
            refused(
                    IllegalArgumentException.class,
                    "the gradient of the weight and the weight",
                    () -> l.normBackward(norm, x, w, k, y, g, w, null, s));
            refused(
                    IllegalArgumentException.class,
                    "the gradient of the bias and the weight",
                    () -> l.normBackward(norm, x, w, k, y, g, null, w, s));
            refused(
                    IllegalArgumentException.class,
                    "the gradient of the bias and statistics",
                    () -> l.normBackward(norm, x, w, k, y, g, null, part, s));
        }
    }
}

package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.host.CopyChecks;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Checks of what operations are given. */
final class Arguments {
    private static final Duration LONGEST_SPIN = Duration.ofSeconds(10);

    private Arguments() {}

    static boolean isFloat(DataType type) {
        return type == DataType.FLOAT32
                || type == DataType.FLOAT64
                || type == DataType.BFLOAT16
                || type == DataType.FLOAT16;
    }

    static void floats(Buffer b, String name) {
        if (!isFloat(b.dataType())) {
            throw wrongType(b, name, "float, double, bfloat16 or half");
        }
    }

    static void singleOrNarrow(Buffer b, String name) {
        if (!isFloat(b.dataType()) || b.dataType() == DataType.FLOAT64) {
            throw wrongType(b, name, "float, bfloat16 or half");
        }
    }

    static void type(Buffer b, String name, DataType type) {
        if (b.dataType() != type) {
            throw wrongType(b, name, type.label());
        }
    }

    private static IllegalArgumentException wrongType(Buffer b, String name, String expected) {
        return new IllegalArgumentException(
                name + " is of " + b.dataType().label() + ", expected " + expected);
    }

    static void count(Buffer b, String name, long count, String of) {
        if (b.count() != count) {
            throw new IllegalArgumentException(
                    name + " has " + b.count() + " elements, but " + of + " has " + count);
        }
    }

    static void alike(Buffer b, String name, Buffer model, String of) {
        if (b.dataType() != model.dataType()) {
            throw new IllegalArgumentException(
                    "%s is of %s, but %s of %s"
                            .formatted(name, b.dataType().label(), of, model.dataType().label()));
        }
        count(b, name, model.count(), of);
    }

    /** Host memory for the host, memory of this device (or a peer, or pinned) for a GPU. */
    static void on(Device device, Buffer b, String name) {
        if (device.kind() == Device.Kind.HOST && b.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    name + " is on " + b.device() + ", expected host memory");
        }
        if (device.kind() == Device.Kind.CUDA) {
            if (b.device().kind() != Device.Kind.CUDA || b.device().index() != device.index()) {
                throw new IllegalArgumentException(
                        name + " is on " + b.device() + ", expected memory of " + device);
            }
            if (b instanceof CudaBuffer c && !c.isOpen()) {
                throw new IllegalStateException(name + " is closed: " + b);
            }
            if (b.address() % b.dataType().size() != 0) {
                throw new IllegalArgumentException(
                        "%s begins at 0x%s, expected a multiple of %s, the size of its elements"
                                .formatted(
                                        name, Long.toHexString(b.address()), b.dataType().size()));
            }
        }
    }

    /** A stream of the host for the host, of this device for a GPU. */
    static void on(Device device, Stream stream) {
        Device of = Objects.requireNonNull(stream, "stream").device();
        boolean host = device.kind() == Device.Kind.HOST && of.kind() == Device.Kind.HOST;
        if (!host && !of.equals(device)) {
            throw new IllegalArgumentException(
                    "the stream belongs to %s, expected one of %s".formatted(of, device));
        }
    }

    /** Overlap that is neither none nor all. */
    static void sameOrApart(Buffer a, String nameA, Buffer b, String nameB) {
        if (a.address() != b.address() || a.count() != b.count()) {
            apart(a, nameA, b, nameB);
        }
    }

    /** Checks buffers that are both there. */
    static void apart(@Nullable Buffer a, String nameA, @Nullable Buffer b, String nameB) {
        if (a != null && b != null && overlap(a, b)) {
            throw new IllegalArgumentException(
                    "%s and %s share memory, expected buffers that do not overlap"
                            .formatted(nameA, nameB));
        }
    }

    private static boolean overlap(Buffer a, Buffer b) {
        if (a.device().kind() == Device.Kind.HOST && b.device().kind() == Device.Kind.HOST) {
            return CopyChecks.overlap(a.asSegment(), b.asSegment());
        }
        return a.address() < b.address() + b.byteSize() && b.address() < a.address() + a.byteSize();
    }

    static void atLeastOne(String name, int value) {
        if (value < 1) {
            throw new IllegalArgumentException(
                    "the " + name + " is " + value + ", expected 1 or more");
        }
    }

    /** Number of rows of a width. */
    static long rows(Buffer b, String name, long width) {
        if (width < 1 || b.count() % width != 0) {
            throw new IllegalArgumentException(
                    ("%s has %s elements and the width of a row is %s, expected whole rows of 1"
                                    + " element or more")
                            .formatted(name, b.count(), width));
        }
        return b.count() / width;
    }

    static void columns(String name, long width, long column, long columns) {
        if (column < 0 || columns < 1 || column > width - columns) {
            throw new IllegalArgumentException(
                    "columns %s to %s do not lie within rows of %s elements of the %s"
                            .formatted(column, column + columns - 1, width, name));
        }
    }

    static void scaleAndNorm(double lossScale, double maxNorm) {
        if (!(lossScale > 0 && lossScale <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the loss scale is " + lossScale + ", expected a finite number above 0");
        }
        if (!(maxNorm > 0)) {
            throw new IllegalArgumentException(
                    "the largest norm is "
                            + maxNorm
                            + ", expected more than 0; infinity means no clipping");
        }
    }

    static void spin(Duration duration) {
        if (duration.isNegative() || duration.compareTo(LONGEST_SPIN) > 0) {
            throw new IllegalArgumentException(
                    "the duration is " + duration + ", expected 0 to " + LONGEST_SPIN);
        }
    }
}

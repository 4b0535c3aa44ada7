package io.jccl.offload.weights;

import io.jccl.device.DataType;
import org.jspecify.annotations.Nullable;

/** Element types of the safetensors format, by the names used there: all of whole bytes. */
public enum WeightType {
    /** Brain float. */
    BF16(2, DataType.BFLOAT16),
    /** Half precision. */
    F16(2, DataType.FLOAT16),
    /** Single precision. */
    F32(4, DataType.FLOAT32),
    /** Double precision. */
    F64(8, DataType.FLOAT64),
    /** 8 bits, 4 of them exponent. */
    F8_E4M3(1, DataType.FLOAT8E4M3),
    /** 8 bits, 5 of them exponent. */
    F8_E5M2(1, DataType.FLOAT8E5M2),
    /** 8 bits, 4 of them exponent, without a negative zero. */
    F8_E4M3FNUZ(1, null),
    /** 8 bits, 5 of them exponent, without a negative zero. */
    F8_E5M2FNUZ(1, null),
    /** 8 bits, all of them exponent: scales of blocks. */
    F8_E8M0(1, null),
    /** Two of single precision: real and imaginary part. */
    C64(8, null),
    /** Truth value, a byte. */
    BOOL(1, null),
    /** Signed byte. */
    I8(1, DataType.INT8),
    /** Unsigned byte. */
    U8(1, DataType.UINT8),
    /** Signed 16 bits. */
    I16(2, null),
    /** Unsigned 16 bits. */
    U16(2, null),
    /** Signed 32 bits. */
    I32(4, DataType.INT32),
    /** Unsigned 32 bits. */
    U32(4, DataType.UINT32),
    /** Signed 64 bits. */
    I64(8, DataType.INT64),
    /** Unsigned 64 bits. */
    U64(8, DataType.UINT64);

    private final int size;
    private final @Nullable DataType dataType;

    WeightType(int size, @Nullable DataType dataType) {
        this.size = size;
        this.dataType = dataType;
    }

    /**
     * Size of an element.
     *
     * @return bytes
     */
    public int size() {
        return size;
    }

    /**
     * The element type of a buffer with such elements.
     *
     * @return the type; null if buffers have no such type
     */
    public @Nullable DataType dataType() {
        return dataType;
    }

    /** Whether elements can be converted to and from float32. */
    boolean converts() {
        return this == BF16 || this == F16 || this == F32;
    }
}

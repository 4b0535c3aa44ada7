package io.jccl.device;

/**
 * The element types that all engines support.
 *
 * <p>Names, sizes and {@linkplain #code() codes} are those of {@code ncclDataType_t} in NCCL's
 * {@code nccl.h}. The host and MPI engines reduce floating-point types narrower than 32 bits in
 * float32 and round once, to nearest even, when the result is written; NCCL rounds after each
 * addition.
 */
public enum DataType {
    /** Signed 8-bit integer; arithmetic wraps. */
    INT8("int8", 0, 1, Kind.SIGNED),
    /** Unsigned 8-bit integer; arithmetic wraps. */
    UINT8("uint8", 1, 1, Kind.UNSIGNED),
    /** Signed 32-bit integer; arithmetic wraps. */
    INT32("int32", 2, 4, Kind.SIGNED),
    /** Unsigned 32-bit integer; arithmetic wraps. */
    UINT32("uint32", 3, 4, Kind.UNSIGNED),
    /** Signed 64-bit integer; arithmetic wraps. */
    INT64("int64", 4, 8, Kind.SIGNED),
    /** Unsigned 64-bit integer; arithmetic wraps. */
    UINT64("uint64", 5, 8, Kind.UNSIGNED),
    /** IEEE 754 binary16. */
    FLOAT16("half", 6, 2, Kind.NARROW_FLOAT),
    /** IEEE 754 binary32. */
    FLOAT32("float", 7, 4, Kind.FLOAT),
    /** IEEE 754 binary64. */
    FLOAT64("double", 8, 8, Kind.FLOAT),
    /** The upper half of a binary32: 8 exponent and 7 fraction bits. */
    BFLOAT16("bfloat16", 9, 2, Kind.NARROW_FLOAT),
    /**
     * 4 exponent and 3 fraction bits, no infinities, one NaN pattern per sign, largest value 448
     * (OCP 8-bit Floating Point Specification, format E4M3). Values out of range saturate when
     * written.
     */
    FLOAT8E4M3("f8e4m3", 10, 1, Kind.NARROW_FLOAT),
    /**
     * 5 exponent and 2 fraction bits with infinities, largest finite value 57344 (OCP 8-bit
     * Floating Point Specification, format E5M2). Values out of range, including infinities,
     * saturate at the largest finite value when written.
     */
    FLOAT8E5M2("f8e5m2", 11, 1, Kind.NARROW_FLOAT);

    private enum Kind {
        SIGNED,
        UNSIGNED,
        NARROW_FLOAT,
        FLOAT
    }

    private static final DataType[] BY_CODE = new DataType[values().length];

    static {
        for (DataType t : values()) {
            BY_CODE[t.code] = t;
        }
    }

    private final String label;
    private final int code;
    private final int size;
    private final Kind kind;

    DataType(String label, int code, int size, Kind kind) {
        this.label = label;
        this.code = code;
        this.size = size;
        this.kind = kind;
    }

    /**
     * The name used by nccl-tests, in its output and for its {@code -d} flag.
     *
     * @return for example {@code "float"} or {@code "bfloat16"}
     */
    public String label() {
        return label;
    }

    /**
     * The number of this type in {@code ncclDataType_t}.
     *
     * @return 0 to 11
     */
    public int code() {
        return code;
    }

    /**
     * Size of one element.
     *
     * @return bytes
     */
    public int size() {
        return size;
    }

    /**
     * Whether the type is an integer type.
     *
     * @return true for the six integer types
     */
    public boolean isInteger() {
        return kind == Kind.SIGNED || kind == Kind.UNSIGNED;
    }

    /**
     * Whether the type is an unsigned integer type.
     *
     * @return true for uint8, uint32 and uint64
     */
    public boolean isUnsigned() {
        return kind == Kind.UNSIGNED;
    }

    /**
     * Whether values are widened to float32 before they are reduced.
     *
     * @return true for float16, bfloat16 and the two float8 formats
     */
    public boolean isNarrowFloat() {
        return kind == Kind.NARROW_FLOAT;
    }

    /**
     * Returns the type with the given code.
     *
     * @param code a number of {@code ncclDataType_t}
     * @return the type
     * @throws IllegalArgumentException if no type has that code
     */
    public static DataType ofCode(int code) {
        if (code < 0 || code >= BY_CODE.length) {
            throw new IllegalArgumentException(
                    "data type code %s is unknown, expected 0 to %s"
                            .formatted(code, BY_CODE.length - 1));
        }
        return BY_CODE[code];
    }

    /**
     * Returns the type with the given name.
     *
     * @param label an nccl-tests name ({@code float}, {@code half}, ...) or this enum's own name in
     *     any case ({@code float32}, {@code FLOAT16}, ...)
     * @return the type
     * @throws IllegalArgumentException if no type has that name
     */
    public static DataType ofLabel(String label) {
        for (DataType t : values()) {
            if (t.label.equalsIgnoreCase(label) || t.name().equalsIgnoreCase(label)) {
                return t;
            }
        }
        StringBuilder known = new StringBuilder();
        for (DataType t : BY_CODE) {
            known.append(known.isEmpty() ? "" : ", ").append(t.label);
        }
        throw new IllegalArgumentException(
                "data type '" + label + "' is unknown, expected one of " + known);
    }
}

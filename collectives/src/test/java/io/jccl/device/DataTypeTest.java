package io.jccl.device;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testkit.Messages;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class DataTypeTest {
    /** The rows of ncclDataType_t in nccl.h, with the names that nccl-tests prints. */
    @ParameterizedTest
    @CsvSource({
        "INT8, int8, 0, 1, true, false, false",
        "UINT8, uint8, 1, 1, true, true, false",
        "INT32, int32, 2, 4, true, false, false",
        "UINT32, uint32, 3, 4, true, true, false",
        "INT64, int64, 4, 8, true, false, false",
        "UINT64, uint64, 5, 8, true, true, false",
        "FLOAT16, half, 6, 2, false, false, true",
        "FLOAT32, float, 7, 4, false, false, false",
        "FLOAT64, double, 8, 8, false, false, false",
        "BFLOAT16, bfloat16, 9, 2, false, false, true",
        "FLOAT8E4M3, f8e4m3, 10, 1, false, false, true",
        "FLOAT8E5M2, f8e5m2, 11, 1, false, false, true"
    })
    void isWhatNcclSays(
            DataType type,
            String label,
            int code,
            int size,
            boolean integer,
            boolean unsigned,
            boolean narrow) {
        assertEquals(label, type.label());
        assertEquals(code, type.code());
        assertEquals(size, type.size());
        assertEquals(integer, type.isInteger());
        assertEquals(unsigned, type.isUnsigned());
        assertEquals(narrow, type.isNarrowFloat());
        assertEquals(type, DataType.ofCode(code));
        assertEquals(type, DataType.ofLabel(label));
        assertEquals(type, DataType.ofLabel(type.name().toLowerCase(Locale.ROOT)));
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, 12, Integer.MAX_VALUE, Integer.MIN_VALUE})
    void unknownCodeIsNamed(int code) {
        String message = Messages.of(IllegalArgumentException.class, () -> DataType.ofCode(code));
        assertTrue(message.contains(Integer.toString(code)), message);
    }

    @Test
    void unknownLabelIsNamedWithTheKnownOnes() {
        String message =
                Messages.of(IllegalArgumentException.class, () -> DataType.ofLabel("float24"));
        assertTrue(message.contains("float24"), message);
        for (DataType type : DataType.values()) {
            assertTrue(message.contains(type.label()), message);
        }
    }
}

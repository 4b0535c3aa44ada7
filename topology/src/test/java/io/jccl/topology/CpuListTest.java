package io.jccl.topology;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CpuListTest {
    @ParameterizedTest
    @ValueSource(strings = {"", "0", "0-3", "0-3,8", "1,3,5-6,8191", "65535"})
    void listsAreReadAndWrittenAlike(String text) {
        assertEquals(text, CpuList.text(CpuList.parse(text)));
    }

    @Test
    void setsHaveOneForm() {
        assertEquals("{0, 1, 2, 5, 7}", CpuList.parse(" 0-2,5, 7-7").toString());
        assertEquals("0-5", CpuList.text(CpuList.parse("3-5,0-2,1")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"0-x", "4-3", "0,,1", "5-", "-7", "65536", "0-100000000", "1 2"})
    void whatIsNotAListIsRefused(String text) {
        NumberFormatException e =
                assertThrows(NumberFormatException.class, () -> CpuList.parse(text));
        assertTrue(String.valueOf(e.getMessage()).contains("'" + text + "'"), e::getMessage);
    }
}

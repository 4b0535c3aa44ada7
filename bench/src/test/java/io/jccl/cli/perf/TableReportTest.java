package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TableReportTest {
    @ParameterizedTest
    @CsvSource({
        "0, 7, 0.00",
        "1234.567, 7, 1234.57",
        "12345.67, 7, 12345.7",
        "1234567.8, 7, 1234568",
        "12345678, 7, 1.2e+07",
        "1234567, 6, 1e+06",
    })
    void numbersFitTheirColumn(double value, int width, String text) {
        assertEquals(text, TableReport.number(value, width));
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0",
        "1, 1",
        "100, 100",
        "0.25, 0.25",
        "3.14159265, 3.14159",
        "123456, 123456",
        "1234567, 1.23457e+06",
        "1000000, 1e+06",
        "0.0001, 0.0001",
        "0.00001234, 1.234e-05",
    })
    void generalFormatIsThatOfC(double value, String text) {
        assertEquals(text, TableReport.general(value));
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0.00 B",
        "999, 999 B",
        "1024, 1.00 KB",
        "10240, 10.0 KB",
        "1310720, 1.25 MB",
        "536870912000, 500 GB",
        "5497558138880, 5120 GB",
    })
    void memoryHasThreeDigits(long bytes, String text) {
        assertEquals(text, TableReport.bytes(bytes));
    }
}

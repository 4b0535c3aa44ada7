package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What tasks tell each other, and which engine follows from it. */
class SeatingTest {
    private static Seat cpu(String host) {
        return new Seat(host, "boot 25 /dev/shm @" + host, 7, "host:0", "", "job", "");
    }

    private static Seat gpu(String host, int index) {
        String device = "cuda:" + index;
        return new Seat(host, "m" + host, 8, device, host + device, "job", "1234 s&cret");
    }

    private static Seating.Engine engine(Seat... seats) {
        return new Seating(List.of(seats)).engine();
    }

    private static String refusal(Seat... seats) {
        return String.valueOf(assertThrows(JcclException.class, () -> engine(seats)).getMessage());
    }

    @Test
    void enginesByPlaces() {
        assertEquals(Seating.Engine.HOST, engine(cpu("a")));
        assertEquals(Seating.Engine.HOST, engine(cpu("a"), cpu("a"), cpu("a")));
        assertEquals(Seating.Engine.NCCL, engine(gpu("a", 0), gpu("a", 1)));
        assertEquals(Seating.Engine.NCCL, engine(gpu("a", 0), gpu("b", 0)));
    }

    @Test
    void machinesWithoutGpusAreRefused() {
        String why = refusal(cpu("a"), cpu("b"), cpu("a"));
        assertTrue(
                why.contains("in 2 places without common shared memory, by rank [[0, 2], [1]]"),
                why);
        assertTrue(why.contains("rank 1 host:0 on b (process 7)"), why);
        assertTrue(why.contains("spark.task.resource.gpu.amount=1"), why);
    }

    @Test
    void someWithGpusAreRefused() {
        String why = refusal(gpu("a", 0), cpu("a"));
        assertTrue(why.startsWith("1 of 2 tasks have a GPU, expected all or none"), why);
    }

    @Test
    void aSharedGpuIsRefused() {
        String why = refusal(gpu("a", 0), gpu("b", 1), gpu("b", 1));
        assertTrue(why.startsWith("ranks 1 and 2 both have cuda:1 on b (process 8)"), why);
    }

    @Test
    void seatsTravelAsText() {
        Seat odd = new Seat("fe80::1%eth0", "b o\not &=%", 1, "cuda:3", "ü", "j", "80 s&c=r");
        Seating read = Seating.parse(new String[] {odd.text(), gpu("a", 1).text()});
        assertEquals(List.of(odd, gpu("a", 1)), read.seats());
    }

    @Test
    void aSeatOfThisProcess() {
        Seat here = Seat.here("worker-3:40001", Device.host(), "job", "");
        assertEquals("worker-3", here.host());
        assertEquals(ProcessHandle.current().pid(), here.pid());
        assertEquals(here, Seat.here("worker-3:40002", Device.host(), "job", ""));
    }

    @ParameterizedTest
    @CsvSource({
        "a:1,a",
        "10.0.0.1:77,10.0.0.1",
        "[::1]:9,[::1]",
        "[::1],[::1]",
        "a,a",
        "localhost,localhost"
    })
    void hosts(String address, String host) {
        assertEquals(host, Seat.host(address));
    }

    @ParameterizedTest
    @CsvSource({"''", "hello", "jccl-spark-2&a&b&1&c&d&e&f", "jccl-spark-1&a&b&1&c&d&e"})
    void othersTextIsRefused(String text) {
        JcclException e = assertThrows(JcclException.class, () -> Seat.parse(3, text));
        String why = String.valueOf(e.getMessage());
        assertTrue(why.startsWith("rank 3 said '" + text + "', expected jccl-spark-1"), why);
    }

    @Test
    void addressesOfGpus() {
        assertEquals(5, AssignedGpu.index(new String[] {" 5 "}));
        for (String[] bad : new String[][] {{}, {"0", "1"}, {"GPU-5fc1"}, {"-1"}}) {
            JcclException e = assertThrows(JcclException.class, () -> AssignedGpu.index(bad));
            String why = String.valueOf(e.getMessage());
            assertTrue(why.contains("spark."), Arrays.toString(bad) + ": " + why);
        }
    }
}

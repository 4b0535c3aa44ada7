package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.BandwidthCase;
import io.jccl.cli.Main;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.Completion;
import io.jccl.offload.TierStore;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class BandwidthCommandTest {
    private record Result(int status, String out, String err) {}

    private static Result run(BandwidthCommand command, String line) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                Main.execute(
                        "bandwidth",
                        command,
                        line.isEmpty() ? new String[0] : line.split(" "),
                        new PrintWriter(out),
                        new PrintWriter(err));
        return new Result(status, out.toString(), err.toString());
    }

    private static Result run(String line) {
        return run(new BandwidthCommand(), line);
    }

    @Test
    void allCasesOfTheHostEngineAreTables() {
        Result r = run("--device host -b 100K -i 2 -n 2");
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("memory to memory on the CPU"), r.out);
        for (BandwidthCase c : BandwidthCase.values()) {
            assertEquals(
                    !c.isNvme(), r.out.contains("Running " + c.label() + "."), c + "\n" + r.out);
            if (!c.isNvme() && !c.isPeer()) {
                assertTrue(r.out.contains(c.heading()), c + "\n" + r.out);
            }
        }
        assertTrue(r.out.contains("WAIVED: needs two GPUs"), r.out);
        assertTrue(
                r.out.matches("(?s).*SUM host_to_device_memcpy_ce [0-9]+\\.[0-9]{2}\n.*"), r.out);
    }

    @Test
    void jsonHasTheNumbersOfTheCasesThatWereAskedFor() throws Exception {
        Result r =
                run(
                        "--device host -b 64K -t device_to_host_memcpy_ce,0 -t device_local_copy --json");
        assertEquals(0, r.status, r::toString);
        JsonNode top = new ObjectMapper().readTree(r.out).get("jccl_bandwidth");
        assertEquals(65536, top.get("buffer_bytes").asLong());
        JsonNode cases = top.get("testcases");
        assertEquals(3, cases.size());
        assertEquals("device_to_host_memcpy_ce", cases.get(0).get("name").asText());
        assertEquals("host_to_device_memcpy_ce", cases.get(1).get("name").asText());
        for (JsonNode c : cases) {
            assertEquals("Passed", c.get("status").asText());
            double value = c.get("bandwidth_matrix").get(0).get(0).asDouble();
            assertTrue(value > 0, r.out);
            assertEquals(value, c.get("sum").asDouble());
        }
    }

    /** A drive that gives back what was written, or not. */
    private static final class Drive implements TierStore {
        private final boolean forgetful;
        private byte[] file = new byte[0];
        private int reads;

        Drive(boolean forgetful) {
            this.forgetful = forgetful;
        }

        private static final Completion DONE =
                new Completion() {
                    @Override
                    public boolean isDone() {
                        return true;
                    }

                    @Override
                    public void await(Duration timeout) {}
                };

        @Override
        public Place place(String name, DataType type, long count) {
            file = new byte[(int) count];
            return new Place() {
                @Override
                public Completion read(Buffer pinned) {
                    reads++;
                    pinned.copyFrom(MemorySegment.ofArray(file));
                    return DONE;
                }

                @Override
                public Completion write(Buffer pinned) {
                    if (!forgetful) {
                        pinned.copyTo(MemorySegment.ofArray(file));
                    }
                    return DONE;
                }

                @Override
                public void close() {}
            };
        }
    }

    @Test
    void aDriveIsReadAndWritten() {
        Drive drive = new Drive(false);
        Result r =
                run(
                        new BandwidthCommand(folder -> drive),
                        "--device host -b 64K -n 5 -i 2 -t nvme_read,nvme_write --nvme .");
        assertEquals(0, r.status, r::toString);
        assertEquals(10, drive.reads);
        assertTrue(r.out.contains("SUM nvme_read"), r.out);
    }

    @Test
    void aRealDriveIsReadAndWritten(@TempDir Path folder) throws IOException {
        Result r = run("--device host -b 3M -n 2 -i 1 -t nvme_read,nvme_write --nvme " + folder);
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("SUM nvme_write"), r.out);
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void wrongDataFailsTheCase() {
        Result r =
                run(
                        new BandwidthCommand(folder -> new Drive(true)),
                        "--device host -b 64K -t nvme_read --nvme .");
        assertEquals(1, r.status, r::toString);
        assertTrue(r.out.contains("ERROR: byte 0 of the copy is 0, expected 1"), r.out);
    }

    @Test
    void casesAreListedAndMistakesNamed() {
        Result list = run("--list");
        assertEquals(0, list.status);
        assertEquals(BandwidthCase.values().length, list.out.lines().count());
        for (String line :
                new String[] {
                    "-t host_to_nowhere", "-t 99", "--device gpu", "-b 0", "-i 0", "-n -1", "-b x"
                }) {
            Result r = run(line.startsWith("--device") ? line : "--device host " + line);
            assertEquals(2, r.status, line + r);
            assertTrue(
                    r.err.contains("expected") || r.err.contains("not a number of bytes"),
                    line + " " + r.err);
        }
        Result noFolder = run("--device host --nvme /no/such/folder");
        assertEquals(2, noFolder.status);
        assertTrue(noFolder.err.contains("'/no/such/folder' is not a folder"), noFolder.err);
    }
}

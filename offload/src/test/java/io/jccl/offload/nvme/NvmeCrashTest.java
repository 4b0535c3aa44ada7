package io.jccl.offload.nvme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.testkit.Workers;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Stores in processes of their own, which are killed. */
class NvmeCrashTest {
    private static final int COUNT = 400_001;

    @TempDir private Path folder;

    /** A trainer whose state in every step depends on the step alone. */
    static final class Child {
        private Child() {}

        public static void main(String[] args) throws IOException {
            try (NvmeStore store = open(Path.of(args[0]));
                    Buffer state = Device.host().allocate(DataType.INT64, COUNT)) {
                long step = check(store, state);
                System.out.println(step);
                if (args.length > 1) {
                    System.in.read();
                    return;
                }
                Region region = region(store);
                while (true) {
                    fill(state, ++step);
                    // In two halves that share a block.
                    int half = COUNT / 2;
                    IoTicket first = store.write(region, 0, state.slice(0, half));
                    IoTicket second = store.write(region, half, state.slice(half, COUNT - half));
                    first.await(NvmeStoreTest.WAIT);
                    second.await(NvmeStoreTest.WAIT);
                    store.commit(step);
                    System.out.println(step);
                }
            }
        }
    }

    private static NvmeStore open(Path folder) {
        return NvmeStore.open(
                folder, new Budgets(Map.of()), NvmeOptions.DEFAULT.withBlockBytes(64 << 10));
    }

    private static Region region(NvmeStore store) {
        return store.region("state", DataType.INT64, COUNT);
    }

    private static void fill(Buffer state, long step) {
        for (int i = 0; i < COUNT; i++) {
            state.setLong(i, step * 1_000_003 + i);
        }
    }

    /** Reads the state, which verifies its checksums, and compares every element. */
    private static long check(NvmeStore store, Buffer state) {
        long step = store.committedStep().orElse(0);
        region(store).read(state).await(NvmeStoreTest.WAIT);
        for (int i = 0; i < COUNT; i++) {
            long expected = step == 0 ? 0 : step * 1_000_003 + i;
            assertEquals(expected, state.getLong(i));
        }
        return step;
    }

    private Process start(String... more) throws IOException {
        String[] all =
                Stream.concat(Stream.of(folder.toString()), Stream.of(more)).toArray(String[]::new);
        return new ProcessBuilder(Workers.command(List.of(), Child.class, all))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    private static BufferedReader output(Process child) {
        return new BufferedReader(
                new InputStreamReader(child.getInputStream(), StandardCharsets.US_ASCII));
    }

    @Test
    void killedAtAnyTime() throws Exception {
        kill(4);
    }

    @Test
    @Tag("exhaustive")
    void killedVeryOften() throws Exception {
        kill(40);
    }

    private void kill(int kills) throws Exception {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("NvmeCrashTest: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        long last = 0;
        try (Buffer state = Device.host().allocate(DataType.INT64, COUNT)) {
            for (int i = 0; i < kills; i++) {
                Process child = start();
                try (BufferedReader said = output(child)) {
                    // What the child found, and verified, is what was there when the last died.
                    assertEquals(Long.toString(last), said.readLine());
                    // In the last one at least, so that there is a step.
                    int least = i == kills - 1 ? 1 : 0;
                    for (int steps = least + random.nextInt(3); steps > 0; steps--) {
                        last = Long.parseLong(said.readLine());
                    }
                    Thread.sleep(0, random.nextInt(999_999));
                    Thread.sleep(random.nextInt(80));
                    // Process itself would close its output too.
                    assertTrue(child.toHandle().destroyForcibly());
                    assertTrue(child.waitFor(60, TimeUnit.SECONDS));
                    for (String line = said.readLine(); line != null; line = said.readLine()) {
                        last = Long.parseLong(line);
                    }
                }
                try (NvmeStore store = open(folder)) {
                    long found = check(store, state);
                    // One more may be committed than the child had time to say.
                    assertTrue(
                            found == last || found == last + 1,
                            "said " + last + ", found " + found);
                    last = found;
                }
            }
        }
        System.out.println(last + " steps, " + kills + " kills");
        assertTrue(last > 0);
    }

    @Test
    void aStoreOfAnotherProcessIsRefused() throws Exception {
        Process child = start("wait");
        try (BufferedReader said = output(child)) {
            assertEquals("0", said.readLine());
            JcclException e = assertThrows(JcclException.class, () -> open(folder));
            assertTrue(
                    String.valueOf(e.getMessage()).contains("in use by process " + child.pid()),
                    e.getMessage());
        } finally {
            child.destroyForcibly();
            child.waitFor();
        }
        // Its lock ended with it.
        open(folder).close();
    }
}

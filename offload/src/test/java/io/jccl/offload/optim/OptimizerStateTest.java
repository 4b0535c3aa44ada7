package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class OptimizerStateTest {
    private static final Device HOST = Device.host();

    @TempDir private Path folder;

    private static void fill(OptimizerState s, long seed) {
        System.out.println("state seed " + seed);
        Random r = new Random(seed);
        for (int k = -1; k < s.moments(); k++) {
            Buffer b = k < 0 ? s.parameters() : s.moment(k);
            for (long i = 0; i < b.count(); i++) {
                b.set(i, b.dataType() == DataType.UINT8 ? r.nextInt(256) : r.nextGaussian());
            }
        }
    }

    private static byte[] all(OptimizerState s) {
        byte[] p = s.parameters().asSegment().toArray(ValueLayout.JAVA_BYTE);
        for (int k = 0; k < s.moments(); k++) {
            byte[] m = s.moment(k).asSegment().toArray(ValueLayout.JAVA_BYTE);
            int at = p.length;
            p = Arrays.copyOf(p, at + m.length);
            System.arraycopy(m, 0, p, at, m.length);
        }
        return p;
    }

    @Test
    void comesBackAsItWas() throws IOException {
        Path file = folder.resolve("state");
        for (Optimizer o :
                new Optimizer[] {
                    Adam.defaults(),
                    Sgd.withMomentum(0.9),
                    new Sgd(0, 0, 0, false),
                    Adam8bit.defaults()
                }) {
            for (int n : new int[] {0, 1, 1000, 300_001}) {
                try (OptimizerState s = OptimizerState.allocate(o, HOST, n);
                        OptimizerState t = OptimizerState.allocate(o, HOST, n)) {
                    fill(s, n);
                    s.save(file, 42 + n);
                    assertEquals(42 + n, t.restore(file));
                    assertArrayEquals(all(s), all(t));
                    long moment = o instanceof Adam8bit ? (n + 255L) / 256 * 260 : 4L * n;
                    assertEquals(64 + 4L * n + o.moments() * moment + 4, Files.size(file));
                }
            }
        }
        assertFalse(Files.exists(folder.resolve("state.part")));
    }

    @Test
    void tornForeignAndOtherFilesAreRefusedAndChangeNothing() throws IOException {
        Path file = folder.resolve("state");
        try (OptimizerState s = OptimizerState.allocate(Adam.defaults(), HOST, 1000);
                OptimizerState other = OptimizerState.allocate(Adam.defaults(), HOST, 1001);
                OptimizerState sgd = OptimizerState.allocate(Sgd.withMomentum(0.9), HOST, 1000)) {
            fill(s, 1);
            s.save(file, 7);
            refused(other, file, "expected 1001");
            refused(sgd, file, "with 1");
            byte[] good = Files.readAllBytes(file);
            fill(s, 2);
            for (int at : new int[] {26, 64, 5000, good.length - 5, good.length - 1}) {
                byte[] bad = good.clone();
                bad[at] ^= 1;
                Files.write(file, bad);
                refused(s, file, "damaged");
            }
            for (int length : new int[] {64, 100, good.length - 1}) {
                Files.write(file, Arrays.copyOf(good, length));
                refused(s, file, "torn");
            }
            Files.write(file, new byte[100]);
            refused(s, file, "is not an optimizer state");
            Files.write(file, new byte[3]);
            refused(s, file, "is not an optimizer state");
            Files.write(file, good);
            assertEquals(7, s.restore(file));
            assertThrows(IllegalArgumentException.class, () -> s.save(file, -1));
        }
    }

    private static void refused(OptimizerState s, Path file, String why) {
        byte[] before = all(s);
        String m =
                String.valueOf(assertThrows(IOException.class, () -> s.restore(file)).getMessage());
        assertTrue(m.contains(why) && m.contains(file.toString()), m);
        assertArrayEquals(before, all(s));
    }

    /** Each moment has its size in the file: not what a torn file has. */
    @Test
    void anotherOptimizersFileIsNamedAsSuch() throws IOException {
        Path file = folder.resolve("state");
        try (OptimizerState s = OptimizerState.allocate(Adam.defaults(), HOST, 1000);
                OptimizerState bits = OptimizerState.allocate(Adam8bit.defaults(), HOST, 1000)) {
            s.save(file, 1);
            refused(bits, file, "or of another optimizer");
        }
    }

    @Test
    void anInterruptedSaveNamesItsCause() {
        try (OptimizerState s = OptimizerState.allocate(Adam.defaults(), HOST, 10)) {
            Thread.currentThread().interrupt();
            IOException e =
                    assertThrows(IOException.class, () -> s.save(folder.resolve("state"), 1));
            assertTrue(Thread.interrupted());
            assertTrue(String.valueOf(e.getMessage()).contains("Interrupt"), e::toString);
        }
    }

    @Test
    void failedSaveLeavesTheOldFile() throws IOException {
        Path file = folder.resolve("state");
        try (OptimizerState s = OptimizerState.allocate(Adam.defaults(), HOST, 10)) {
            s.save(file, 1);
            byte[] old = Files.readAllBytes(file);
            // Something in the way of the neighbour, as a full disk would be.
            Files.createDirectory(folder.resolve("state.part"));
            Files.createFile(folder.resolve("state.part").resolve("x"));
            fill(s, 3);
            String m =
                    String.valueOf(
                            assertThrows(IOException.class, () -> s.save(file, 2)).getMessage());
            assertTrue(m.contains("cannot save 188 bytes"), m);
            assertArrayEquals(old, Files.readAllBytes(file));
        }
    }

    /** /dev/full refuses every write as a full disk does. */
    @Test
    void fullDiskIsReported() throws IOException {
        org.junit.jupiter.api.Assumptions.assumeTrue(
                Files.exists(Path.of("/dev/full")), "there is no /dev/full here");
        Path file = folder.resolve("state");
        Files.createSymbolicLink(folder.resolve("state.part"), Path.of("/dev/full"));
        try (OptimizerState s = OptimizerState.allocate(Adam.defaults(), HOST, 10)) {
            String m =
                    String.valueOf(
                            assertThrows(IOException.class, () -> s.save(file, 2)).getMessage());
            assertTrue(m.contains("No space left"), m);
            assertFalse(Files.exists(file));
        }
    }
}

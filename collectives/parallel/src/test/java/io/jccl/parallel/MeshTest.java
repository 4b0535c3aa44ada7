package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.parallel.Mesh.Axis;
import io.jccl.testkit.Messages;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Which ranks are in which group, and what is refused. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class MeshTest {
    @ParameterizedTest
    @ValueSource(ints = {6, 7})
    void groupsHoldTheRightRanks(int ranks) {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("MeshTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        Communicator.runLocal(ranks, c -> ParallelBodies.mesh(c, seed));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4, 5, 8})
    void groupsOfMoreRanksHoldTheRightOnes(int ranks) {
        groupsHoldTheRightRanks(ranks);
    }

    @Test
    void lastAxisVariesFastest() {
        List<Axis> axes = List.of(new Axis("data", 2), new Axis("tensor", 3));
        Communicator.runLocal(
                6,
                c -> {
                    try (Mesh mesh = Mesh.create(c, axes)) {
                        assertEquals(c.rank() / 3, mesh.coordinate("data"));
                        assertEquals(c.rank() % 3, mesh.coordinate("tensor"));
                        long[] data = ConsistencyCheck.gather(mesh.group("data"), c.rank());
                        assertEquals(List.of((long) c.rank() % 3, 3L + c.rank() % 3), boxed(data));
                        Communicator all = mesh.group(List.of("tensor", "data"));
                        assertEquals(6, all.size());
                        assertEquals(c.rank(), all.rank());
                        assertEquals(1, mesh.group(List.of()).size());
                    }
                });
    }

    private static List<Long> boxed(long[] values) {
        return java.util.Arrays.stream(values).boxed().toList();
    }

    private static String refused(Axis... axes) {
        StringBuilder message = new StringBuilder();
        Communicator.runLocal(
                4,
                c -> {
                    String m =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () -> Mesh.create(c, List.of(axes)));
                    if (c.rank() == 0) {
                        message.append(m);
                    }
                    // The communicator is as good as before.
                    assertEquals(4, ConsistencyCheck.gather(c, 1).length);
                });
        return message.toString();
    }

    @Test
    void refusesWhatIsNoMesh() {
        String product = refused(new Axis("data", 2), new Axis("tensor", 3));
        assertTrue(product.contains("product 6") && product.contains("4 ranks"), product);
        String twice = refused(new Axis("x", 2), new Axis("x", 2));
        assertTrue(twice.contains("'x' is there twice"), twice);
        String zero = refused(new Axis("data", 4), new Axis("x", 0));
        assertTrue(zero.contains("'x' is 0"), zero);
        String blank = refused(new Axis(" ", 4));
        assertTrue(blank.contains("no name"), blank);
        String huge = refused(new Axis("a", 1 << 30), new Axis("b", 1 << 30), new Axis("c", 16));
        assertTrue(huge.contains("4 ranks"), huge);
        assertTrue(refused().contains("0 axes"));
    }

    @Test
    void ranksThatDisagreeAllGetTheSameError() {
        Communicator.runLocal(
                3,
                c -> {
                    Axis odd = new Axis("tensor", c.rank() == 2 ? 1 : 3);
                    List<Axis> axes =
                            c.rank() == 2 ? List.of(new Axis("data", 3), odd) : List.of(odd);
                    String m =
                            Messages.of(
                                    CollectiveMismatchException.class, () -> Mesh.create(c, axes));
                    assertTrue(m.contains("'tensor of 3'") && m.contains("'data of 3'"), m);
                    assertTrue(m.contains("rank 0") && m.contains("rank 2"), m);
                });
    }

    @Test
    void unknownAxisIsNamedWithThoseThereAre() {
        Communicator.runLocal(
                2,
                c -> {
                    Mesh mesh = Mesh.create(c, List.of(new Axis("data", 2)));
                    String m =
                            Messages.of(IllegalArgumentException.class, () -> mesh.group("expert"));
                    assertTrue(m.contains("'expert'") && m.contains("data"), m);
                    assertThrows(IllegalArgumentException.class, () -> mesh.size("expert"));
                    assertThrows(IllegalArgumentException.class, () -> mesh.coordinate(""));
                    String twice =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () -> mesh.group(List.of("data", "data")));
                    assertTrue(twice.contains("twice"), twice);
                    mesh.close();
                    mesh.close();
                    assertThrows(IllegalStateException.class, () -> mesh.group("data"));
                    // Only the groups are closed.
                    assertEquals(2, ConsistencyCheck.gather(c, 1).length);
                });
    }
}

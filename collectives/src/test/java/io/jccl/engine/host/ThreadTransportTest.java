package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Who releases the memory that ranks share. */
class ThreadTransportTest {
    private static final int[] BOTH = {0, 1};

    @Test
    void splitThatFailsOnOneRankIsClosedByTheLast() {
        SharedMemoryTransport parent = new ThreadTransport(2);
        List<SharedMemoryTransport> children = new ArrayList<>();
        Runnable other =
                () -> {
                    if (children.isEmpty()) {
                        children.add(parent.split(1, 1, 0, BOTH, () -> {}));
                    }
                    throw new IllegalStateException("the barrier has failed");
                };
        assertThrows(IllegalStateException.class, () -> parent.split(0, 1, 0, BOTH, other));
        SharedMemoryTransport child = children.getFirst();
        child.leave(1);
        assertFalse(child.control.memory.scope().isAlive());
        parent.leave(0);
        parent.leave(1);
    }
}

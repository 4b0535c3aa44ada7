package io.jccl.engine.mpi;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.engine.mpi.CurrentOperation.Seen;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/** What the service thread reads of the operation that another thread is in. */
class CurrentOperationTest {
    private static final String[] NAMES = {"even", "odd"};

    @Test
    void isInsideUntilItLeaves() {
        CurrentOperation current = new CurrentOperation();
        assertEquals(new Seen(0, false, 0, ""), current.look());
        current.enter("odd", true);
        assertTrue(current.isInside());
        assertEquals(3, current.entered());
        assertEquals(new Seen(1, true, 0, "odd"), current.look());
        current.leave();
        assertFalse(current.isInside());
        assertEquals(new Seen(1, false, 0, "odd"), current.look());
    }

    /** The number of one operation with the text of the next would be a disagreement of ranks. */
    @Test
    void isReadWholeOrNotAtAll() throws InterruptedException {
        CurrentOperation current = new CurrentOperation();
        AtomicBoolean over = new AtomicBoolean();
        Thread writer =
                Thread.ofPlatform()
                        .daemon()
                        .start(() -> {
                            for (int i = 1; !over.get(); i++) {
                                current.enter(NAMES[i & 1], false);
                                if (i % 3 != 0) { // in a group, operations end with the next
                                    current.leave();
                                }
                            }
                        });
        try {
            for (int i = 0; i < 4_000_000; i++) {
                Seen s = current.look();
                if (s.inside()) {
                    assertEquals(NAMES[(int) (s.number() & 1)], s.text());
                }
            }
        } finally {
            over.set(true);
            writer.join();
        }
    }
}

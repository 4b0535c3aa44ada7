package io.jccl.bootstrap;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.RankFailedException;
import io.jccl.testkit.Workers;
import java.lang.foreign.Arena;
import org.junit.jupiter.api.Test;

/** What a rank concludes from the locks of the others while they join. */
class LocalHandshakeTest {
    private static final int RANKS = 2;
    private static final FileLocks.Look FREE = new FileLocks.Look(false, 0);

    private final SharedFolder folder = new SharedFolder(Workers.newJobId());

    private static void join(ControlBlock control) {
        control.release(control.state(1) + ControlBlock.JOIN, 1);
    }

    @Test
    void aRankThatComesRightAfterTheLookAtItsLockIsAlive() {
        try (Arena arena = Arena.ofConfined()) {
            ControlBlock control =
                    new ControlBlock(arena.allocate(ControlBlock.size(RANKS), 4096), RANKS);
            LocalHandshake handshake =
                    new LocalHandshake(
                            folder,
                            0,
                            RANKS,
                            r -> {
                                join(control);
                                return FREE;
                            });
            assertDoesNotThrow(() -> handshake.checkOthers(control));
        }
    }

    @Test
    void aRankThatHasJoinedAndHoldsNoLockHasEnded() {
        try (Arena arena = Arena.ofConfined()) {
            ControlBlock control =
                    new ControlBlock(arena.allocate(ControlBlock.size(RANKS), 4096), RANKS);
            join(control);
            LocalHandshake handshake = new LocalHandshake(folder, 0, RANKS, r -> FREE);
            RankFailedException e =
                    assertThrows(RankFailedException.class, () -> handshake.checkOthers(control));
            assertTrue(String.valueOf(e.getMessage()).startsWith("rank 1 ended"), e::toString);
        }
    }
}

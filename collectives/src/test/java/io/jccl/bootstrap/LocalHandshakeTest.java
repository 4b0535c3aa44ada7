package io.jccl.bootstrap;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.CommunicatorOptions;
import io.jccl.LocalJob;
import io.jccl.RankFailedException;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.time.Duration;
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

    /** Such as when another process is stopped at the gate. */
    @Test
    void aRankThatDoesNotGetItsTurnIsNotSaidToRunAlready() throws IOException {
        String job = Workers.newJobId();
        SharedFolder shared = new SharedFolder(job);
        OwnFolder.make(shared.path());
        try (FileLocks.Gate gate = FileLocks.Gate.enter(shared.path())) {
            assertNotNull(gate);
            CommunicatorOptions options =
                    CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMillis(200));
            String message =
                    Messages.of(
                            CollectiveTimeoutException.class,
                            () -> LocalJob.join(job, 0, RANKS, options));
            assertTrue(message.startsWith("rank 0 of 2 waited PT0.2S for its turn in "), message);
        }
        LocalJob.cleanUp(job);
    }
}

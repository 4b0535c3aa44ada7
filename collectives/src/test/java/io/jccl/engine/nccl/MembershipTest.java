package io.jccl.engine.nccl;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.rendezvous.Store;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranks that meet again without others: all of them go on, or none. */
@Timeout(60)
class MembershipTest {
    private static final Duration AT_ONCE = Duration.ofNanos(1);
    private static final Duration PATIENCE = Duration.ofSeconds(50);

    private final Store store = Store.inMemory();
    private final Membership first = new Membership(store, "world.without1", 0, 2);
    private final Membership second = new Membership(store, "world.without1", 1, 2);

    @Test
    void noRankGivesUpOnceTheOthersGoOn() throws InterruptedException {
        Thread other = Thread.ofPlatform().start(() -> first.confirm(PATIENCE));
        second.confirm(PATIENCE);
        other.join();
        // What would end it comes too late.
        first.fail(new RankFailedException("it fails in its first operation"));
        assertDoesNotThrow(() -> second.confirm(AT_ONCE));
    }

    @Test
    void noRankGoesOnOnceAnotherHasGivenUp() {
        assertThrows(CollectiveTimeoutException.class, () -> first.confirm(AT_ONCE));
        Throwable error = assertThrows(RankFailedException.class, () -> second.confirm(PATIENCE));
        assertTrue(
                String.valueOf(error.getMessage()).contains("rank 0 gave up: rank 0 waited "),
                error::toString);
    }

    /** NCCL made it on one rank and failed on the other. */
    @Test
    void rankThatFailedIsNamed() {
        second.fail(new RankFailedException("NCCL failed"));
        Throwable error = assertThrows(RankFailedException.class, () -> first.confirm(PATIENCE));
        assertTrue(
                String.valueOf(error.getMessage()).endsWith("rank 1: NCCL failed"),
                error::toString);
    }
}

package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertThrows;

import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import org.junit.jupiter.api.Test;

class WaiterTest {
    /** Its part is done, so the operation of the other rank completes. */
    @Test
    void rankThatAbortsAfterItsPartIsNotMissed() {
        SharedMemoryTransport fabric = new ThreadTransport(2);
        CommunicatorOptions options = CommunicatorOptions.DEFAULT;
        try (HostCommunicator first = new HostCommunicator(fabric, 0, options);
                HostCommunicator second = new HostCommunicator(fabric, 1, options)) {
            second.waiter().announce();
            second.abort("no more");
            long at = fabric.control.state(1) + ControlBlock.TICK;
            first.waiter().begin();
            first.waiter().pause(1, at, 1);
            assertThrows(RankFailedException.class, () -> first.waiter().pause(1, at, 2));
            first.waiter().end();
        }
    }
}

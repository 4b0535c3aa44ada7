package io.jccl.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** On the host engine; NcclLifecycleTest is for NCCL. */
@Timeout(value = 60, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DescendantsTest {
    @Test
    void whatWasMadeFromACommunicatorIsKnown() {
        Communicator.runLocal(
                2,
                comm -> {
                    assertEquals(List.of(), Descendants.of(comm));
                    try (Communicator pair = Objects.requireNonNull(comm.split(0, 0));
                            Communicator again = pair.shrink(List.of(), false)) {
                        assertEquals(List.of(again, pair), Descendants.of(comm));
                        assertEquals(List.of(again), Descendants.of(pair));
                        assertEquals(List.of(), Descendants.of(again));
                    }
                });
    }

    /** Ranks that close them in different orders wait for each other. */
    @Test
    void theNewestIsTheFirst() {
        Communicator.runLocal(
                1,
                comm -> {
                    List<Communicator> made = new ArrayList<>();
                    for (int i = 0; i < 8; i++) {
                        made.addFirst(Objects.requireNonNull(comm.split(0, 0)));
                    }
                    assertEquals(made, Descendants.of(comm));
                    made.forEach(Communicator::close);
                });
    }
}

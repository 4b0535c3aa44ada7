package io.jccl.engine.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What communicators made from others need is there until the last is closed. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class AfterCloseTest {
    @Test
    void runsWhenAllThatWereMadeFromOneAreClosed() {
        TestFake.use();
        AtomicInteger ran = new AtomicInteger();
        NcclRank whole =
                (NcclRank)
                        NcclEngine.local(List.of(TestFake.device(0)), CommunicatorOptions.DEFAULT)
                                .getFirst();
        whole.afterClose(new AfterClose(ran::incrementAndGet));
        Communicator part = Objects.requireNonNull(whole.split(0, 0));
        Communicator partOfPart = Objects.requireNonNull(part.split(0, 0));
        whole.close();
        part.close();
        part.close();
        assertEquals(0, ran.get());
        partOfPart.close();
        assertEquals(1, ran.get());
    }
}

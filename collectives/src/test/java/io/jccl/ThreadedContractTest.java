package io.jccl;

import io.jccl.contract.Case;
import io.jccl.contract.EngineContractTest;
import io.jccl.contract.RankLoop;
import io.jccl.contract.RankLoop.Failure;
import java.time.Duration;
import java.util.List;

/** An engine with ranks as threads of this JVM. */
abstract class ThreadedContractTest extends EngineContractTest {
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(40));

    @Override
    protected List<Failure> run(int ranks, List<Case> cases) throws InterruptedException {
        return RankLoop.onThreads(
                ranks,
                false,
                cases,
                algorithm -> open(ranks, OPTIONS.withAlgorithm(algorithm)),
                index -> {},
                Duration.ofMinutes(5));
    }

    /**
     * Makes the communicators of a world.
     *
     * @param ranks number of ranks
     * @param options settings of all ranks
     * @return one for each rank
     */
    protected abstract List<Communicator> open(int ranks, CommunicatorOptions options);
}

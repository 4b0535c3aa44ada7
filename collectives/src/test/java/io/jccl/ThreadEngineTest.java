package io.jccl;

import java.util.List;

/** The host engine with ranks as threads of this JVM. */
class ThreadEngineTest extends ThreadedContractTest {
    @Override
    protected List<Communicator> open(int ranks, CommunicatorOptions options) {
        return Communicator.local(ranks, options);
    }
}

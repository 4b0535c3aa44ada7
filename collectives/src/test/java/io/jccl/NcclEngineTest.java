package io.jccl;

import io.jccl.contract.Case;
import io.jccl.device.Device;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;

/** The NCCL engine on the fake, one GPU for each rank, all in this JVM. */
@UsesFakes
class NcclEngineTest extends ThreadedContractTest {
    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {1, 2, 3, 4, 8};
    }

    @Override
    protected int thinness(int ranks) {
        return ranks == 8 ? 8 : 3;
    }

    @Override
    protected List<Communicator> open(int ranks, CommunicatorOptions options) {
        List<Device> devices = IntStream.range(0, ranks).mapToObj(TestFake::device).toList();
        return Communicator.local(devices, options);
    }

    @Override
    protected List<Case> adapt(List<Case> cases) {
        return Case.onNccl(cases);
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {3};
    }

    @Override
    protected boolean fewTypes() {
        return true;
    }
}

package io.jccl;

import io.jccl.contract.Case;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import java.util.List;
import java.util.stream.IntStream;

/** The NCCL engine on the double, one GPU for each rank, all in this JVM. */
class NcclEngineTest extends ThreadedContractTest {
    @Override
    protected List<Communicator> open(int ranks, CommunicatorOptions options) {
        List<Device> devices = IntStream.range(0, ranks).mapToObj(Cuda::device).toList();
        return Communicator.local(devices, options);
    }

    @Override
    protected List<Case> adapt(List<Case> cases) {
        return cases.stream().map(Case::withOwnAlgorithm).distinct().toList();
    }
}

package io.jccl;

import io.jccl.contract.Case;
import io.jccl.testfake.TestFake;
import java.util.List;

/** The NCCL engine on the fake, with ranks as processes, one GPU for each. */
class NcclProcessEngineTest extends ProcessContractTest {
    @Override
    protected String engine() {
        return "nccl";
    }

    @Override
    protected List<String> jvmFlags() {
        return TestFake.flags();
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {2, 3, 4};
    }

    @Override
    protected int thinness(int ranks) {
        return 6;
    }

    @Override
    protected List<Case> adapt(List<Case> cases) {
        return Case.onNccl(cases);
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {2};
    }

    @Override
    protected boolean fewTypes() {
        return true;
    }
}

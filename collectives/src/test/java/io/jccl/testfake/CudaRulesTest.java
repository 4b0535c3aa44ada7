package io.jccl.testfake;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The fake answers as CUDA on a GPU does: {@code src/test/c/cuda_rules.c} asks, {@code
 * src/test/c/cuda_rules.txt} holds the answers that a GPU gave.
 */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class CudaRulesTest {
    @Test
    void answerLikeCuda() throws IOException {
        new RuleTable("cuda_rules.txt", 2).check(1, "cuda_rules");
    }
}

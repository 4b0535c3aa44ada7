package io.jccl.cli.topo;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Answers requested in addition to the plan.
 *
 * @param best the best subsets of the GPUs; null if not asked for
 * @param verdict on a measurement; null if there is none
 * @param environment variables of NCCL; null if not asked for
 */
record Answers(
        @Nullable BestGpus best, @Nullable Verdict verdict, @Nullable List<EnvAdvice> environment) {
    /** Nothing was asked. */
    static final Answers NONE = new Answers(null, null, null);
}

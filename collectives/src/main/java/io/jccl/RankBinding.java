package io.jccl;

import io.jccl.bindings.ThreadAffinity;
import io.jccl.error.JcclException;
import io.jccl.internal.Cpus;
import java.util.BitSet;
import java.util.List;
import java.util.Map;

/** Binds the threads that are ranks to CPUs. */
final class RankBinding {
    private static final System.Logger LOG = System.getLogger(RankBinding.class.getName());

    private RankBinding() {}

    /**
     * The CPUs of each rank of this machine.
     *
     * @return empty if none is to be bound
     */
    static List<BitSet> shares(
            CommunicatorOptions options, Map<String, String> environment, int ranks) {
        CpuBinding asked = options.binding();
        CpuBinding binding = asked != null ? asked : CpuBinding.of(environment);
        // A variable that a launcher has set for all its children must not make the JVM warn, or
        // fail, where the program itself does without native calls.
        if (binding == CpuBinding.NONE || (asked == null && !ThreadAffinity.isAvailable())) {
            return List.of();
        }
        return binding == CpuBinding.CORE
                ? Cpus.cores(Cpus.all(), Cpus.ofProcess(), ranks)
                : Cpus.nodes(Cpus.all(), Cpus.ofProcess(), ranks);
    }

    /** Binds the calling thread to the share of a rank. */
    static void bind(List<BitSet> shares, int rank) {
        if (shares.isEmpty()) {
            return;
        }
        try {
            ThreadAffinity.set(shares.get(rank));
        } catch (JcclException e) {
            // It runs everywhere else as well, only slower.
            LOG.log(System.Logger.Level.WARNING, e.getMessage());
        }
    }
}

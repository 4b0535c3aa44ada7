package io.jccl;

import io.jccl.bindings.internal.ThreadAffinity;
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
     * @return empty if no rank is to be bound
     */
    static List<BitSet> shares(
            CommunicatorOptions options, Map<String, String> environment, int ranks) {
        CpuBinding asked = options.binding();
        CpuBinding binding = asked != null ? asked : CpuBinding.of(environment);
        // A variable that a launcher set for all its children must not cause a warning or an error
        // of the JVM in a program that makes no native calls.
        if (binding == CpuBinding.NONE || (asked == null && !ThreadAffinity.isAvailable())) {
            return List.of();
        }
        return binding == CpuBinding.CORE
                ? Cpus.cores(Cpus.all(), Cpus.ofProcess(), ranks)
                : Cpus.nodes(Cpus.all(), Cpus.ofProcess(), ranks);
    }

    /** Binds the calling thread to the CPUs of a rank. */
    static void bind(List<BitSet> shares, int rank) {
        if (shares.isEmpty()) {
            return;
        }
        try {
            ThreadAffinity.set(shares.get(rank));
        } catch (JcclException e) {
            // The rank works on any CPU, only slower.
            LOG.log(System.Logger.Level.WARNING, e.getMessage());
        }
    }
}

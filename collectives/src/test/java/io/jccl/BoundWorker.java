package io.jccl;

import io.jccl.internal.Cpus;
import io.jccl.topology.CpuList;
import java.time.Duration;
import java.util.Locale;

/** A rank as a process that prints the CPUs on which its thread may run. */
final class BoundWorker {
    private BoundWorker() {}

    /**
     * Runs one rank.
     *
     * @param args a binding; nothing for that of the environment
     */
    public static void main(String[] args) {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));
        if (args.length > 0) {
            options = options.withBinding(CpuBinding.valueOf(args[0].toUpperCase(Locale.ROOT)));
        }
        // Twice: what is bound by the first is no limit to the second.
        Communicator.fromEnvironment(options).close();
        try (Communicator comm = Communicator.fromEnvironment(options)) {
            comm.barrier(comm.device().defaultStream());
            System.out.println("CPUS " + CpuList.text(Cpus.ofThread()));
        }
    }
}

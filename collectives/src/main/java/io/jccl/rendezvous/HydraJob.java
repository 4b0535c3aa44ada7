package io.jccl.rendezvous;

import java.util.List;
import java.util.Optional;

/**
 * What tells one run of MPICH's launcher from another. Its variables do not: {@code
 * HYDI_CONTROL_FD} is a file's number in the process. But each of its processes is below a {@code
 * hydra_pmi_proxy}, one on each machine, and those of one run, and of no other that runs, are told
 * the same {@code --control-port host:port} of their {@code mpiexec} (hydra's {@code
 * tools/bootstrap} and {@code pm/pmiserv} in https://github.com/pmodels/mpich).
 */
final class HydraJob {
    private static final String PROXY = "hydra_pmi_proxy";
    private static final List<String> OPTIONS = List.of("--control-port", "--pgid");

    /** Shells and wrappers between the proxy and a JVM. */
    private static final int DEPTH = 16;

    private HydraJob() {}

    /** The run that this process is of; empty if it is of none, or that cannot be seen. */
    static Optional<String> find() {
        Optional<ProcessHandle> p = ProcessHandle.current().parent();
        for (int i = 0; i < DEPTH && p.isPresent(); i++) {
            ProcessHandle.Info info = p.get().info();
            if (info.command().filter(c -> c.endsWith(PROXY)).isPresent()) {
                return info.arguments().flatMap(a -> of(List.of(a)));
            }
            p = p.get().parent();
        }
        return Optional.empty();
    }

    /** The same from a proxy's arguments. */
    static Optional<String> of(List<String> arguments) {
        StringBuilder id = new StringBuilder();
        for (String option : OPTIONS) {
            int at = arguments.indexOf(option);
            if (at < 0 || at + 1 >= arguments.size()) {
                return Optional.empty();
            }
            id.append(id.isEmpty() ? "" : "-").append(arguments.get(at + 1));
        }
        return Optional.of(id.toString());
    }
}

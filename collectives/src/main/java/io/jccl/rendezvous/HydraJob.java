package io.jccl.rendezvous;

import java.util.List;
import java.util.Optional;

/**
 * Identifies a run of MPICH's launcher. Its variables do not: {@code HYDI_CONTROL_FD} is a file
 * descriptor of the process. But every process descends from a {@code hydra_pmi_proxy}, one per
 * machine, and the proxies of a run, and of no concurrent one, have the same argument {@code
 * --control-port host:port}, the address of their {@code mpiexec} (hydra's {@code tools/bootstrap}
 * and {@code pm/pmiserv} in https://github.com/pmodels/mpich).
 */
final class HydraJob {
    private static final String PROXY = "hydra_pmi_proxy";
    private static final List<String> OPTIONS = List.of("--control-port", "--pgid");

    /** Most ancestors to search: there may be shells and wrappers between the proxy and the JVM. */
    private static final int DEPTH = 16;

    private HydraJob() {}

    /** The run of this process; empty if there is none or it cannot be determined. */
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

    /** The run according to a proxy's arguments. */
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

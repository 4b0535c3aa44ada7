package io.jccl;

import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/**
 * Which CPUs the ranks of a machine run on. Two ranks that the scheduler places on one core
 * alternate waiting for each other, and it may take a third of a second until one is migrated.
 *
 * <p>The thread of the rank is bound: the one that {@link Communicator#runLocal(int,
 * CommunicatorOptions, Communicator.RankBody) runLocal} starts, or the one that calls {@link
 * Communicator#fromEnvironment(CommunicatorOptions) fromEnvironment} on the host engine, until it
 * ends. Threads that it starts afterwards inherit its CPUs; threads of the JVM are not bound. Only
 * CPUs in the process's affinity mask are used; if there are fewer CPUs than ranks, nothing is
 * bound.
 *
 * <p>Requires Linux and native access: {@code --enable-native-access=io.jccl.bindings}, or {@code
 * ALL-UNNAMED} on the class path.
 */
public enum CpuBinding {
    /** Threads run where the scheduler puts them. */
    NONE,

    /**
     * Each rank gets an equal number of whole, neighbouring cores, which no other rank uses: one
     * core each if there are as many ranks as cores.
     */
    CORE,

    /** Each rank gets all CPUs of a NUMA node; neighbouring ranks share one. */
    NUMA;

    /** The environment variable that sets the binding if {@link CommunicatorOptions} do not. */
    public static final String VARIABLE = "JCCL_BIND";

    /**
     * The binding that the environment selects.
     *
     * @param environment a process's variables
     * @return the value of {@value #VARIABLE}, or {@link #NONE} if that is not set
     * @throws IllegalArgumentException if its value is not {@code none}, {@code core} or {@code
     *     numa}
     */
    public static CpuBinding of(Map<String, String> environment) {
        String value = environment.getOrDefault(VARIABLE, "").strip();
        if (value.isEmpty()) {
            return NONE;
        }
        return named(value)
                .orElseThrow(() ->
                        new IllegalArgumentException(
                                VARIABLE + " is '" + value + "', expected core, numa or none"));
    }

    /**
     * Finds a binding by name, in upper or lower case.
     *
     * @param word such as {@code core}
     * @return the binding; empty if the name is unknown
     */
    public static Optional<CpuBinding> named(String word) {
        return Arrays.stream(values()).filter(b -> b.name().equalsIgnoreCase(word)).findFirst();
    }

    /** The name used on the command line. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

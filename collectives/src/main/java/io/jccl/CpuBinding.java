package io.jccl;

import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/**
 * Which CPUs the ranks of a machine run on. Two ranks that the scheduler puts on one core wait for
 * each other by turns, and it may take a third of a second until it parts them.
 *
 * <p>Bound is the thread that is the rank: the one that {@link Communicator#runLocal(int,
 * CommunicatorOptions, Communicator.RankBody) runLocal} starts, or the one that calls {@link
 * Communicator#fromEnvironment(CommunicatorOptions) fromEnvironment} on the host engine, for as
 * long as it lives. Threads that it starts afterwards inherit its CPUs; those of the JVM do not.
 * Only CPUs are used that the process may use, and where there are fewer than ranks, nothing is
 * bound.
 *
 * <p>Needs Linux and native access: {@code --enable-native-access=io.jccl.bindings}, or {@code
 * ALL-UNNAMED} on the class path.
 */
public enum CpuBinding {
    /** Threads run where the scheduler puts them. */
    NONE,

    /**
     * Each rank gets whole cores of its own: as many as there are for each, near each other. Where
     * ranks are as many as cores, that is one core each.
     */
    CORE,

    /** Each rank gets all CPUs of a NUMA node; neighbouring ranks share one. */
    NUMA;

    /** The environment variable that sets it where {@link CommunicatorOptions} do not. */
    public static final String VARIABLE = "JCCL_BIND";

    /**
     * What the environment asks for.
     *
     * @param environment a process's variables
     * @return the value of {@value #VARIABLE}, or {@link #NONE} if that is not set
     * @throws IllegalArgumentException if it has another value than {@code none}, {@code core} and
     *     {@code numa}
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
     * Finds one by its word, in upper or lower case.
     *
     * @param word such as {@code core}
     * @return the binding; empty if there is none of that name
     */
    public static Optional<CpuBinding> named(String word) {
        return Arrays.stream(values()).filter(b -> b.name().equalsIgnoreCase(word)).findFirst();
    }

    /** The word on the command line. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

package io.jccl.engine.mpi;

import java.util.List;
import java.util.Map;

/**
 * Settings of the MPI engine from the environment; the same on all ranks.
 *
 * @param waiting whether collectives block or are polled
 * @param threads number of threads that may be in MPI at a time
 */
record MpiSettings(String waiting, String threads) {
    static final String WAIT = "JCCL_MPI_WAIT";
    static final String THREADS = "JCCL_MPI_THREADS";

    static MpiSettings of(Map<String, String> env) {
        return new MpiSettings(
                value(env, WAIT, "jccl.mpi.wait", List.of("block", "poll")),
                value(env, THREADS, "jccl.mpi.threads", List.of("multiple", "serialized")));
    }

    /** The value of a setting, of the system property first; the first of the words by default. */
    private static String value(
            Map<String, String> env, String name, String property, List<String> words) {
        String set = System.getProperty(property);
        String value = set != null ? set : env.getOrDefault(name, words.getFirst());
        if (!words.contains(value.strip())) {
            throw new IllegalArgumentException(
                    (set != null ? property : name)
                            + " is '"
                            + value
                            + "', expected "
                            + String.join(" or ", words));
        }
        return value.strip();
    }

    boolean polls() {
        return waiting.equals("poll");
    }

    boolean serialized() {
        return threads.equals("serialized");
    }
}

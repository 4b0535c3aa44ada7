package io.jccl.engine.nccl;

import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** Environment variables that change what NCCL does, for error messages. */
final class Settings {
    private Settings() {}

    /** All of them in one clause, or an empty text. */
    static String inForce() {
        Map<String, String> set = new TreeMap<>();
        System.getenv()
                .forEach((name, value) -> {
                    if (name.startsWith("NCCL_") || name.equals("CUDA_VISIBLE_DEVICES")) {
                        set.put(name, value);
                    }
                });
        return set.isEmpty()
                ? ""
                : set.entrySet().stream()
                        .map(e -> e.getKey() + "=" + e.getValue())
                        .collect(Collectors.joining(", ", "; in force: ", ""));
    }
}

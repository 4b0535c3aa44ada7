package io.jccl.offload.timeplan;

import java.util.HashMap;
import java.util.Map;

/**
 * How much of the hardware's performance a step achieves: the resource {@code
 * constants.properties}, each number with its source.
 *
 * @param values by name
 */
record Constants(Map<String, Double> values) {
    static final Constants SHIPPED = load();

    private static Constants load() {
        Map<String, Double> all = new HashMap<>();
        for (String line : Resource.lines("constants.properties")) {
            String[] parts = line.split("=", 2);
            all.put(parts[0].strip(), Double.parseDouble(parts[1].strip()));
        }
        return new Constants(Map.copyOf(all));
    }

    double get(String name) {
        Double value = values.get(name);
        if (value == null) {
            throw new IllegalStateException("constants.properties has no " + name);
        }
        return value;
    }

    /** The value for a generation of GPUs. */
    double get(String name, int sm) {
        String generation =
                sm >= 100 ? "BLACKWELL" : sm >= 90 ? "HOPPER" : sm >= 80 ? "AMPERE" : "VOLTA";
        return get(name + "." + generation);
    }
}

package io.jccl.offload.memplan;

import java.util.List;
import java.util.function.Function;

/** Errors that name the value, what was expected and what to do. */
final class Checks {
    private Checks() {}

    static void range(String name, long value, long least, long most, String advice) {
        if (value < least || value > most) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected " + least + " to " + most + "; " + advice);
        }
    }

    static void range(String name, double value, double least, double most, String advice) {
        if (!(value >= least && value <= most)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected " + least + " to " + most + "; " + advice);
        }
    }

    /** The value with a label; what is said of another, such as "optimizer 'x' is". */
    static <T> T named(String said, String label, List<T> all, Function<T, String> labelOf) {
        List<String> labels = all.stream().map(labelOf).toList();
        int at = labels.indexOf(label);
        if (at < 0) {
            throw new IllegalArgumentException(
                    said + " unknown, expected one of " + String.join(", ", labels));
        }
        return all.get(at);
    }
}

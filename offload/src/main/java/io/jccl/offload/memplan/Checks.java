package io.jccl.offload.memplan;

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
}

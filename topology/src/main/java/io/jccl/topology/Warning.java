package io.jccl.topology;

import java.util.Objects;

/**
 * Something odd that a reader or planner saw and went on after.
 *
 * @param line line of the text it is about, from 1; 0 if none
 * @param column column, from 1; 0 if none
 * @param message what was found, what was expected, what was made of it
 */
public record Warning(int line, int column, String message) {
    /** Checks that there is a message. */
    public Warning {
        Objects.requireNonNull(message, "message");
    }

    /**
     * A warning about no particular line.
     *
     * @param message what is odd
     * @return the warning
     */
    public static Warning of(String message) {
        return new Warning(0, 0, message);
    }

    @Override
    public String toString() {
        return line == 0 ? message : "line " + line + ", column " + column + ": " + message;
    }
}

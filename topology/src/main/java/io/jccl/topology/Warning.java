package io.jccl.topology;

import java.util.Objects;

/**
 * A problem that did not stop a reader or planner.
 *
 * @param line line of the text it is about, from 1; 0 if none
 * @param column column, from 1; 0 if none
 * @param message what was found, what was expected, and how it was handled
 */
public record Warning(int line, int column, String message) {
    /** Checks that the message is not null. */
    public Warning {
        Objects.requireNonNull(message, "message");
    }

    /**
     * A warning that concerns no particular line.
     *
     * @param message what was found
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

package io.jccl.testkit;

import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.function.Executable;

/** What errors say. */
public final class Messages {
    private Messages() {}

    /**
     * Runs what has to fail.
     *
     * @param type of the error
     * @param call what fails
     * @return the error's message
     */
    public static String of(Class<? extends Throwable> type, Executable call) {
        return String.valueOf(assertThrows(type, call).getMessage());
    }
}

package io.jccl.bindings;

import java.util.List;

/**
 * The outcome of the search for a native library, and its steps: {@link NativeLibraries#discover}.
 *
 * <p><b>Threads:</b> immutable.
 */
public sealed interface Discovery {
    /**
     * One place that was searched.
     *
     * @param how where the path came from, such as {@code environment variable NCCL_HOME}
     * @param path the file or folder, or the bare file name passed to the dynamic loader
     * @param outcome {@code loaded}, or the reason why it was not loaded
     */
    record Attempt(String how, String path, String outcome) {
        @Override
        public String toString() {
            return how + ": " + path + ": " + outcome;
        }
    }

    /**
     * The library was found and loaded.
     *
     * @param loaded the library
     * @param attempts all steps in order, the successful one last
     */
    record Found(LoadedLibrary loaded, List<Attempt> attempts) implements Discovery {}

    /**
     * The library was not found, could not be loaded, or was refused.
     *
     * @param library the library
     * @param reason the reason and what to do, in one sentence
     * @param attempts all steps in order
     */
    record Missing(NativeLibrary library, String reason, List<Attempt> attempts)
            implements Discovery {
        /**
         * The reason, followed by one line for each step.
         *
         * @return the text of {@link NativeLibraryUnavailableException}
         */
        public String message() {
            StringBuilder text = new StringBuilder(reason);
            for (Attempt attempt : attempts) {
                text.append("\n  ").append(attempt);
            }
            return text.toString();
        }
    }

    /**
     * All steps in order.
     *
     * @return at least one
     */
    List<Attempt> attempts();
}

package io.jccl.bindings;

import java.util.List;

/** How the search for a native library ended, and by which steps. */
public sealed interface Discovery {
    /**
     * One place that was looked at.
     *
     * @param how where the path came from, such as {@code environment variable NCCL_HOME}
     * @param path the file or folder, or the bare file name where the dynamic loader was asked
     * @param outcome {@code loaded}, or the reason why it was not
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
     * @param library which one
     * @param reason why, in one sentence, with what to do
     * @param attempts all steps in order
     */
    record Missing(NativeLibrary library, String reason, List<Attempt> attempts)
            implements Discovery {
        /**
         * The reason, then a line for each step.
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

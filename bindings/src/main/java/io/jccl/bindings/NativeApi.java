package io.jccl.bindings;

/**
 * Methods common to all call tables.
 *
 * <p><b>Threads:</b> any, here and for a table's functions as far as the library allows it.
 */
public interface NativeApi {
    /**
     * The library of the table.
     *
     * @return its file and version, and how it was found
     */
    LoadedLibrary library();

    /**
     * Whether the loaded library has a function. Calling one that it lacks throws {@link
     * UnsupportedOperationException} with both versions and the path.
     *
     * @param function its C name, such as {@code ncclCommShrink}
     * @return true if it can be called
     * @throws IllegalArgumentException if the table has no such function
     */
    boolean supports(String function);
}

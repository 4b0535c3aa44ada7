package io.jccl.bindings;

/**
 * A file of a native library on this machine, whether it is used or not.
 *
 * @param library the library
 * @param path the file, with symbolic links resolved
 * @param how the kind of place it was found in, such as {@code usual folder}
 */
public record LibraryFile(NativeLibrary library, String path, String how) {
    @Override
    public String toString() {
        return path + " (" + how + ")";
    }
}

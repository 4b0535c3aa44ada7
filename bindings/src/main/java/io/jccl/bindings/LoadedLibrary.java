package io.jccl.bindings;

/**
 * A native library in this process. It stays loaded until the process ends.
 *
 * @param library the library
 * @param version as the library itself reports it
 * @param path the file, with symbolic links resolved
 * @param how where its path came from, such as {@code environment variable NCCL_HOME}
 */
public record LoadedLibrary(NativeLibrary library, Version version, String path, String how) {
    @Override
    public String toString() {
        return library.title() + " " + version + " from " + path + " (" + how + ")";
    }
}

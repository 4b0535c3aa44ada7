package io.jccl.cli.doctor;

import io.jccl.bindings.NativeLibrary;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** A library's version from the name of its file or pip wheel, without loading it. */
final class FileVersion {
    /** Three numbers: fewer after {@code .so.} are the version of the interface only. */
    private static final Pattern IN_NAME = Pattern.compile(".*\\.so\\.(\\d+\\.\\d+\\.\\d+)");

    /** Prefixes of the folders that pip creates next to a wheel's content. */
    private static final Map<NativeLibrary, String> WHEELS =
            Map.of(
                    NativeLibrary.NCCL, "nvidia_nccl",
                    NativeLibrary.CUDART, "nvidia_cuda_runtime",
                    NativeLibrary.CUBLAS, "nvidia_cublas");

    private static final String WHEEL_END = ".dist-info";

    /** {@code site-packages/nvidia/nccl/lib/libnccl.so.2}. */
    private static final int WHEEL_DEPTH = 4;

    private FileVersion() {}

    /** Null if the names do not contain it. */
    static @Nullable String of(NativeLibrary library, String path) {
        Path file = Path.of(path);
        Matcher name = IN_NAME.matcher(path);
        if (name.matches()) {
            return name.group(1);
        }
        Path packages = file;
        for (int i = 0; i < WHEEL_DEPTH && packages != null; i++) {
            packages = packages.getParent();
        }
        String start = WHEELS.get(library);
        if (packages == null || start == null || !path.contains("/nvidia/")) {
            return null;
        }
        try (DirectoryStream<Path> wheels =
                Files.newDirectoryStream(packages, start + "*" + WHEEL_END)) {
            for (Path wheel : wheels) {
                String folder = String.valueOf(wheel.getFileName());
                return folder.substring(
                        folder.indexOf('-') + 1, folder.length() - WHEEL_END.length());
            }
        } catch (IOException e) {
            // A folder that cannot be listed gives no version.
        }
        return null;
    }
}

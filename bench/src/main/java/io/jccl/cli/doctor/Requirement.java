package io.jccl.cli.doctor;

import io.jccl.bindings.NativeLibrary;
import io.jccl.cli.shell.Text;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** A requirement of the caller. */
public enum Requirement {
    /** NCCL and a GPU. */
    NCCL(NativeLibrary.NCCL, true),
    /** The CUDA runtime and a GPU. */
    CUDA(NativeLibrary.CUDART, true),
    /** cuBLAS and a GPU. */
    CUBLAS(NativeLibrary.CUBLAS, true),
    /** An MPI. */
    MPI(NativeLibrary.MPI, false);

    private final NativeLibrary library;
    private final boolean gpu;

    Requirement(NativeLibrary library, boolean gpu) {
        this.library = library;
        this.gpu = gpu;
    }

    /**
     * Whether a requirement is met.
     *
     * @param name the requirement
     * @param usable whether it is met
     * @param reason what was found, or everything that is missing
     */
    record Result(String name, boolean usable, String reason) {}

    /**
     * Parses a name.
     *
     * @param text such as {@code nccl}
     * @return the requirement
     * @throws IllegalArgumentException if no requirement has this name
     */
    public static Requirement of(String text) {
        return Arrays.stream(values())
                .filter(r -> r.toString().equalsIgnoreCase(text.strip()))
                .findFirst()
                .orElseThrow(() ->
                        new IllegalArgumentException(
                                "'"
                                        + text
                                        + "' cannot be required, expected one of "
                                        + Arrays.stream(values())
                                                .map(Requirement::toString)
                                                .collect(Collectors.joining(", "))));
    }

    Result check(Facts facts) {
        Facts.Library found = facts.library(LibraryProbe.name(library));
        String loaded =
                found.found()
                        ? found.title() + " " + found.version()
                        : found.title() + " is not usable: " + found.reason();
        if (!gpu) {
            return new Result(toString(), found.found(), loaded);
        }
        int gpus = facts.driver().usableGpus();
        String devices =
                switch (facts.driver().cuda()) {
                    case Reading.Known<Facts.Cuda> k when gpus > 0 -> Text.count(gpus, "GPU");
                    case Reading.Known<Facts.Cuda> k -> "the CUDA driver reports no GPU";
                    case Reading.Unknown<Facts.Cuda>(String reason) ->
                            "the CUDA driver reports no GPU: " + reason;
                };
        boolean usable = found.found() && gpus > 0;
        String reason =
                usable || found.found() == gpus > 0
                        ? loaded + (usable ? ", " : "; ") + devices
                        : found.found() ? devices : loaded;
        return new Result(toString(), usable, reason);
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

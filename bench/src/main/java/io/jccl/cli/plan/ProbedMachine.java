package io.jccl.cli.plan;

import io.jccl.offload.timeplan.Hardware;
import java.nio.file.Path;

/** A machine by what jccl probe measured. */
final class ProbedMachine {
    private ProbedMachine() {}

    static Hardware read(Path file, Hardware.Given given) {
        throw new IllegalArgumentException(file + " with " + given);
    }
}

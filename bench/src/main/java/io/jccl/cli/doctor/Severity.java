package io.jccl.cli.doctor;

import java.util.Locale;

/** The severity of a problem. */
enum Severity {
    /** The host engine, or something that is required, does not work. */
    ERROR,
    /** NCCL will fail, or something will be slow. */
    WARNING,
    /** Useful to know when looking for a fault. */
    INFO;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

package io.jccl.cli.doctor;

import java.util.Locale;

/** How much a problem matters. */
enum Severity {
    /** The host engine, or something that is required, does not work. */
    ERROR,
    /** NCCL will fail, or something will be slow. */
    WARNING,
    /** Good to know when something is odd. */
    INFO;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}

package io.jccl.topology.read;

import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import java.util.ArrayList;
import java.util.List;

/** What is wrong with a text: errors, or warnings if the reader is lenient. */
final class Problems {
    private static final int MAX = 50;

    final boolean lenient;
    private final List<Warning> warnings = new ArrayList<>();

    Problems(boolean lenient) {
        this.lenient = lenient;
    }

    List<Warning> warnings() {
        return warnings;
    }

    void add(Span span, int at, String message) {
        if (!lenient) {
            throw span.error(at, message);
        }
        warn(span.warning(at, message));
    }

    void add(Text.Line line, int at, String message) {
        if (!lenient) {
            throw new TopologyFormatException(line.number(), line.column(at), message);
        }
        warn(new Warning(line.number(), line.column(at), message));
    }

    void warn(Warning warning) {
        if (warnings.size() < MAX) {
            warnings.add(warning);
        } else if (warnings.size() == MAX) {
            warnings.add(Warning.of("and more of the kind"));
        }
    }
}

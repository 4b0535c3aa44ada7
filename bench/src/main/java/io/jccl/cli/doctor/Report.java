package io.jccl.cli.doctor;

import io.jccl.ras.RasReport;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A machine's facts and the problems found in them.
 *
 * @param version JCCL's own
 * @param facts everything that was read
 * @param problems the problems, most severe first
 * @param required the caller's requirements
 * @param ras NCCL's own report about its job; null if not requested, or without an answer
 */
public record Report(
        String version,
        Facts facts,
        List<Problem> problems,
        List<Requirement.Result> required,
        @Nullable RasReport ras) {
    /** The host engine and everything required work. */
    public static final int OK = 0;

    /** The host engine does not work. */
    public static final int HOST_ENGINE = 1;

    /** Something required is not usable, but the host engine works. */
    public static final int REQUIRED = 4;

    /**
     * The exit status.
     *
     * @return one of the constants
     */
    public int status() {
        if (!facts.hostEngine().works()) {
            return HOST_ENGINE;
        }
        return required.stream().allMatch(Requirement.Result::usable) ? OK : REQUIRED;
    }

    /**
     * The report as text.
     *
     * @return lines
     */
    public String text() {
        return new TextReport(this).toString();
    }

    /**
     * The report as JSON.
     *
     * @return one JSON object
     */
    public String json() {
        return JsonReport.of(this);
    }
}

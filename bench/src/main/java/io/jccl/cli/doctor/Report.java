package io.jccl.cli.doctor;

import io.jccl.ras.RasReport;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A machine's facts and what they mean.
 *
 * @param version JCCL's own
 * @param facts all that was read
 * @param problems what is not as it should be, worst first
 * @param required what the caller asked for
 * @param ras what NCCL itself says of its job; null if nobody asked, or it did not answer
 */
public record Report(
        String version,
        Facts facts,
        List<Problem> problems,
        List<Requirement.Result> required,
        @Nullable RasReport ras) {
    /** The host engine works, and so does all that is required. */
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
     * For people.
     *
     * @return lines
     */
    public String text() {
        return new TextReport(this).toString();
    }

    /**
     * For programs.
     *
     * @return one JSON object
     */
    public String json() {
        return JsonReport.of(this);
    }
}

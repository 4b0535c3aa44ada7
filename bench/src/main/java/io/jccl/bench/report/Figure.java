package io.jccl.bench.report;

import java.util.List;

/**
 * Charts that belong together, placed side by side where the page is wide enough.
 *
 * @param title what they show
 * @param caption how to read them; may be empty
 * @param charts one or more
 */
public record Figure(String title, String caption, List<Chart> charts) {
    /** Copies the list. */
    public Figure {
        charts = List.copyOf(charts);
    }
}

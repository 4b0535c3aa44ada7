package io.jccl.bench.report;

/**
 * A chart of a page. Java's chart libraries draw through AWT, which would make the image that runs
 * without an installed Java a third larger.
 */
public sealed interface Chart permits LineChart, BarChart {
    /**
     * Colours that readers with colour blindness can distinguish as well; they repeat after the
     * last.
     */
    int COLOURS = 8;

    /** Of its coordinates. */
    int width();

    /** Of its coordinates. */
    int height();

    /** Appends the content of the svg element. */
    void draw(StringBuilder out);

    /** A description for screen readers. */
    String title();
}

package io.jccl.bench.report;

/**
 * A picture of a page. Java's chart libraries draw through AWT, which would make the image that
 * runs without Java a third larger.
 */
public sealed interface Chart permits LineChart, BarChart {
    /** Colours that are told apart, also by those who see fewer; then they begin again. */
    int COLOURS = 8;

    /** Of its coordinates. */
    int width();

    /** Of its coordinates. */
    int height();

    /** Appends what is inside the svg element. */
    void draw(StringBuilder out);

    /** What it shows, for those who do not see it. */
    String title();
}

package io.jccl.topology;

/**
 * A text cannot be read as a topology. The message gives the place, what was found and what was
 * expected.
 */
public final class TopologyFormatException extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    /** Line, from 1; 0 if it concerns the whole text. */
    private final int line;

    /** Column, from 1; 0 if it concerns the whole line. */
    private final int column;

    /**
     * Creates the exception.
     *
     * @param line line of the text, from 1; 0 if it concerns the whole text
     * @param column column, from 1; 0 if it concerns the whole line
     * @param message what was found, what was expected, and what to do
     */
    public TopologyFormatException(int line, int column, String message) {
        super(new Warning(line, column, message).toString());
        this.line = line;
        this.column = column;
    }

    /**
     * The place in the text.
     *
     * @return the line, from 1; 0 if it concerns the whole text
     */
    public int line() {
        return line;
    }

    /**
     * The place in the text.
     *
     * @return the column, from 1; 0 if it concerns the whole line
     */
    public int column() {
        return column;
    }
}

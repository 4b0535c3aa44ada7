package io.jccl.bindings;

/** A library that is of no use. */
final class OpenException extends Exception {
    private static final long serialVersionUID = 1L;

    /** What became of it. */
    enum State {
        /** The dynamic loader knows nothing of that name. */
        ABSENT,
        /** It is there but cannot be loaded. */
        BROKEN,
        /** It is in the process now, but is not what was looked for. */
        LOADED
    }

    private final State state;

    OpenException(State state, String reason) {
        super(reason);
        this.state = state;
    }

    State state() {
        return state;
    }

    String reason() {
        return String.valueOf(getMessage());
    }
}

package io.jccl.bindings;

/** A library that cannot be used. */
final class OpenException extends Exception {
    private static final long serialVersionUID = 1L;

    /** The state of the library. */
    enum State {
        /** The dynamic loader does not find that name. */
        ABSENT,
        /** It exists but cannot be loaded. */
        BROKEN,
        /** It was loaded, but is not the library that was searched for. */
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

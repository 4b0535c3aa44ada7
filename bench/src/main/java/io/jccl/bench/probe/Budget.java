package io.jccl.bench.probe;

/** A span of time, shared out among what is left to do: what one leaves goes to the others. */
final class Budget {
    private static final double NANOS = 1e9;

    private final long end;

    Budget(double seconds) {
        end = System.nanoTime() + (long) (seconds * NANOS);
    }

    /** Seconds left; 0 when it is over. */
    double left() {
        return Math.max(0, (end - System.nanoTime()) / NANOS);
    }

    /** Seconds for the next of so many, all alike. */
    double share(int rest) {
        return left() / Math.max(1, rest);
    }
}

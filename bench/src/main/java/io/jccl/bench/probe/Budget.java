package io.jccl.bench.probe;

/** A time budget, divided among the remaining measurements: unused time goes to later ones. */
final class Budget {
    private static final double NANOS = 1e9;

    private final long end;

    Budget(double seconds) {
        end = System.nanoTime() + (long) (seconds * NANOS);
    }

    /** Seconds left; 0 once it is exceeded. */
    double left() {
        return Math.max(0, (end - System.nanoTime()) / NANOS);
    }

    /** Seconds for the next one of a number of equal measurements. */
    double share(int rest) {
        return left() / Math.max(1, rest);
    }
}

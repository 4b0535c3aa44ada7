package io.jccl.flight;

import io.jccl.Algorithm;

/**
 * Events of Java's flight recorder, if the module jdk.jfr is present. If it is absent or switched
 * off, only a test of a flag remains in the compiled code of an operation. The event classes are
 * loaded when a recording exists and not before: loading them initializes the recorder, which takes
 * a third of the start of a short program.
 */
public final class FlightEvents {
    /** Determined once: modules cannot be added later. */
    private static final boolean PRESENT = isPresent();

    private FlightEvents() {}

    private static boolean isPresent() {
        try {
            // Present and readable by this module.
            Class.forName("jdk.jfr.Event", false, FlightEvents.class.getClassLoader());
            Module own = FlightEvents.class.getModule();
            return ModuleLayer.boot().findModule("jdk.jfr").map(own::canRead).orElse(false);
        } catch (ClassNotFoundException e) {
            return false;
        }
    }

    /** Whether there is or was a recording. */
    private static boolean recording() {
        return PRESENT && jdk.jfr.FlightRecorder.isInitialized();
    }

    /** Whether a recording has enabled collectives. */
    public static boolean on() {
        return recording() && JfrEvents.COLLECTIVE.isEnabled();
    }

    /** Creates a reusable event for the operations of one request. */
    public static Kept make(String communicator, int rank, int size) {
        return JfrEvents.make(communicator, rank, size);
    }

    /** An operation begins. */
    public static void begin(Kept event) {
        JfrEvents.begin(event);
    }

    /**
     * An operation ends: completed, failed or, if the engine completes it later, enqueued.
     *
     * @param event of {@link #make}
     * @param state how it ended
     * @param word the operation, see {@link FlightRecorder#word}
     * @param count elements
     * @param number among all operations of the rank
     * @param order among the collectives; 0 for send and recv
     * @param algorithm that the engine chose
     * @param channels that a library uses; 0 if it does not report them
     */
    public static void end(
            Kept event,
            State state,
            long word,
            long count,
            long number,
            long order,
            Algorithm algorithm,
            int channels) {
        JfrEvents.end(event, state, word, count, number, order, algorithm, channels);
    }

    /** Whether a recording has enabled the progress of engines that complete operations later. */
    public static boolean progressOn() {
        return recording() && JfrEvents.PROGRESS.isEnabled();
    }

    /** For an engine that completes operations later: all up to this one are complete. */
    public static void progress(String communicator, int rank, long completed) {
        JfrEvents.progress(communicator, rank, completed);
    }

    /** How an operation ended. */
    public enum State {
        COMPLETED,
        FAILED,
        ENQUEUED
    }

    /** The reusable event of a request. */
    public interface Kept {}
}

package io.jccl.engine;

/**
 * Events of Java's flight recorder, where the module jdk.jfr is there. With it off, or not there,
 * the compiled code of an operation holds nothing of this but a test of a flag.
 */
public final class FlightEvents {
    /** Asked once: modules do not come later. */
    private static final boolean PRESENT = isPresent();

    private FlightEvents() {}

    private static boolean isPresent() {
        try {
            // Not only there but readable by this module, too.
            Class.forName("jdk.jfr.Event", false, FlightEvents.class.getClassLoader());
            Module own = FlightEvents.class.getModule();
            return ModuleLayer.boot().findModule("jdk.jfr").map(own::canRead).orElse(false);
        } catch (ClassNotFoundException e) {
            return false;
        }
    }

    /** Whether a recording wants collectives. */
    static boolean on() {
        return PRESENT && JfrEvents.COLLECTIVE.isEnabled();
    }

    /** An operation begins. */
    static void begin(EngineCommunicator owner, Request r) {
        JfrEvents.begin(owner, r);
    }

    /** It ends: completed, failed, or for an engine that completes it later, enqueued. */
    static void end(Request r, State state) {
        JfrEvents.end(r, state);
    }

    /** An engine that completes operations later has seen how far it is. */
    public static void progress(EngineCommunicator owner, long completed) {
        if (PRESENT && JfrEvents.PROGRESS.isEnabled()) {
            JfrEvents.progress(owner, completed);
        }
    }

    /** How an operation ended. */
    enum State {
        COMPLETED,
        FAILED,
        ENQUEUED
    }

    /** The event that a request keeps, to be used again. */
    interface Kept {}
}

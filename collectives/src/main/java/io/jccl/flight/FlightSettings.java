package io.jccl.flight;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Settings of the flight recorder from the environment. */
public final class FlightSettings {
    static final String CAPACITY = "JCCL_FLIGHT_CAPACITY";
    static final String CAPACITY_PROPERTY = "jccl.flight.capacity";
    static final String CALL_SITES = "JCCL_FLIGHT_CALLSITES";
    static final String CLOCK = "JCCL_FLIGHT_CLOCK";
    static final String FOLDER = "JCCL_FLIGHT_DIR";

    private static final int DEFAULT_CAPACITY = 1024;
    private static final int MAX_CAPACITY = 1 << 20;

    private FlightSettings() {}

    /** Operations recorded per rank; 0 for none, for measurements. */
    public static int capacity() {
        // The other settings are read when a class is initialized, where errors are hard to read.
        check(CALL_SITES, System.getenv(CALL_SITES), "0", "1");
        check(CLOCK, System.getenv(CLOCK), "exact");
        String property = System.getProperty(CAPACITY_PROPERTY);
        return property != null
                ? capacity(CAPACITY_PROPERTY, property)
                : capacity(CAPACITY, System.getenv(CAPACITY));
    }

    static void check(String name, @Nullable String value, String... expected) {
        if (value != null && !value.isEmpty() && !List.of(expected).contains(value)) {
            throw new IllegalArgumentException(
                    "%s is '%s', expected %s, or unset it"
                            .formatted(name, value, String.join(" or ", expected)));
        }
    }

    static int capacity(String name, @Nullable String value) {
        if (value == null || value.isEmpty()) {
            return DEFAULT_CAPACITY;
        }
        int number;
        try {
            number = Integer.parseInt(value);
        } catch (NumberFormatException e) {
            number = -1;
        }
        if (number != 0 && (number < 16 || number > MAX_CAPACITY)) {
            throw new IllegalArgumentException(
                    "%s is '%s', expected 0, or 16 to %s, the number of operations to remember"
                            .formatted(name, value, MAX_CAPACITY));
        }
        return number;
    }

    /** Whether every operation records its call site, which costs about a microsecond. */
    static boolean callSites() {
        return "1".equals(System.getenv(CALL_SITES));
    }

    /** Whether every operation reads the system's clock. */
    static boolean exactClock() {
        return "exact".equals(System.getenv(CLOCK));
    }

    /** Folder to which a failing rank writes its history; null for none. */
    static @Nullable Path folder() {
        String value = System.getenv(FOLDER);
        if (value == null || value.isEmpty()) {
            return null;
        }
        try {
            return Path.of(value);
        } catch (InvalidPathException e) {
            throw new IllegalArgumentException(
                    FOLDER + " is '" + value + "', expected a folder's path", e);
        }
    }
}

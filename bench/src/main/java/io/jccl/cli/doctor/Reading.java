package io.jccl.cli.doctor;

import java.util.function.Function;
import java.util.function.Predicate;

/**
 * A value of this machine, or why it is not known.
 *
 * @param <T> what was read
 */
public sealed interface Reading<T> {
    /**
     * A value that was read.
     *
     * @param value what was read
     * @param <T> its type
     */
    record Known<T>(T value) implements Reading<T> {}

    /**
     * A value that could not be read.
     *
     * @param reason why
     * @param <T> what was to be read
     */
    record Unknown<T>(String reason) implements Reading<T> {}

    /**
     * A known value.
     *
     * @param value the value
     * @param <T> its type
     * @return the reading
     */
    static <T> Reading<T> known(T value) {
        return new Known<>(value);
    }

    /**
     * An unknown value.
     *
     * @param reason why
     * @param <T> what was to be read
     * @return the reading
     */
    static <T> Reading<T> unknown(String reason) {
        return new Unknown<>(reason);
    }

    /**
     * Derives a value. Machines report strange values: one that the function rejects is unknown.
     *
     * @param function throws any unchecked exception if the value is invalid
     * @param <R> the derived type
     * @return the derived value, or the reason
     */
    default <R> Reading<R> map(Function<? super T, ? extends R> function) {
        return flatMap(v -> known(function.apply(v)));
    }

    /**
     * Derives a reading.
     *
     * @param function throws any unchecked exception if the value makes no sense to it
     * @param <R> the derived type
     * @return the derived reading, or the reason why there is none
     */
    default <R> Reading<R> flatMap(Function<? super T, Reading<R>> function) {
        return switch (this) {
            case Known<T>(T value) -> {
                try {
                    yield function.apply(value);
                } catch (RuntimeException e) {
                    yield unknown("makes no sense: '" + Texts.excerpt(value.toString()) + "'");
                }
            }
            case Unknown<T>(String reason) -> unknown(reason);
        };
    }

    /**
     * The value if there is one.
     *
     * @param other the value if this one is unknown
     * @return one of them
     */
    default T orElse(T other) {
        return this instanceof Known<T>(T value) ? value : other;
    }

    /**
     * This reading, or the other one if only that one is known.
     *
     * @param other what to take otherwise
     * @return one of them
     */
    default Reading<T> or(Reading<T> other) {
        return known() || !other.known() ? this : other;
    }

    /**
     * Whether the value is known and meets a condition.
     *
     * @param test the condition
     * @return false if it is unknown
     */
    default boolean fits(Predicate<? super T> test) {
        return this instanceof Known<T>(T value) && test.test(value);
    }

    /**
     * Whether there is a value.
     *
     * @return false if it is unknown
     */
    default boolean known() {
        return this instanceof Known<T>;
    }
}

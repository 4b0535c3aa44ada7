package io.jccl.bindings;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** Marks a struct that C takes by value: the segment's content is copied into the call. */
@Target(ElementType.PARAMETER)
@Retention(RetentionPolicy.RUNTIME)
@interface ByValue {
    /**
     * The generated class of the struct.
     *
     * @return a class with a static method {@code layout()}
     */
    Class<?> value();
}

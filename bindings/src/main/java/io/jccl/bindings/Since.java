package io.jccl.bindings;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** The first version of the library that has a function, where that is later than our floor. */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@interface Since {
    /**
     * The version.
     *
     * @return such as {@code 2.27}
     */
    String value();
}

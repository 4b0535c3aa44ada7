package io.jccl.bindings;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The first version of the library with a function, if that is later than the oldest supported one.
 */
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

package io.jccl.bindings;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The symbol of a function whose name in the source is a macro, such as {@code cublasCreate_v2};
 * or, with {@code address}, of an object whose address the method returns.
 */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@interface Symbol {
    /**
     * The name in the library's symbol table.
     *
     * @return such as {@code cublasCreate_v2}
     */
    String value();

    /**
     * Whether the method returns the symbol's address instead of calling it.
     *
     * @return true for an object
     */
    boolean address() default false;
}

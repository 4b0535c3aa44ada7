package io.jccl.testfake;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.parallel.ResourceLock;

/**
 * A test or a class of tests that steers or asks the fakes of this JVM: they have one state, so
 * these run one after the other, while others run beside them. {@link TestFake#use} asks for it, or
 * for {@link SharesFakes}. They start first.
 */
@Inherited
@Order(1)
@ResourceLock(UsesFakes.LOCK)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.METHOD, ElementType.TYPE})
public @interface UsesFakes {
    /** What these tests, and those that share the fakes, hold. */
    String LOCK = "the fakes in this JVM";
}

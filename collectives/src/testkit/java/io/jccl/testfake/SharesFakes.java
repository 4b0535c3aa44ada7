package io.jccl.testfake;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.parallel.ResourceAccessMode;
import org.junit.jupiter.api.parallel.ResourceLock;

/**
 * A class of tests that computes on the fakes of this JVM and neither asks nor steers them, but for
 * {@link TestFake#threadsReversed}: such classes run beside each other, and not beside those with
 * {@link UsesFakes}.
 */
@Inherited
@ResourceLock(value = UsesFakes.LOCK, mode = ResourceAccessMode.READ)
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface SharesFakes {}

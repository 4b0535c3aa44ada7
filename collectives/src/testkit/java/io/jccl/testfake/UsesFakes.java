package io.jccl.testfake;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.parallel.ResourceLock;

/**
 * A test or a class of tests that uses the fakes of this JVM: they have one state, so these run one
 * after the other, while others run beside them. {@link TestFake#use} asks for it.
 */
@Inherited
@ResourceLock("the fakes in this JVM")
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.METHOD, ElementType.TYPE})
public @interface UsesFakes {}

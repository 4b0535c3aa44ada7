/**
 * The root of JCCL's exceptions and of its timeouts. Invalid arguments cause the JDK's {@link
 * java.lang.IllegalArgumentException} and similar exceptions instead.
 */
@org.jspecify.annotations.NullMarked
package io.jccl.error;

/**
 * The root of all errors of JCCL, and of all its timeouts. Faults in the arguments of a call are
 * the JDK's {@link java.lang.IllegalArgumentException} and its like instead.
 */
@org.jspecify.annotations.NullMarked
package io.jccl.error;

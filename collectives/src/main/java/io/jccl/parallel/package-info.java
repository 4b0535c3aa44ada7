/**
 * What trainers build on the collectives: products of matrices, and ways to spread a model and its
 * data over ranks. Everything works on {@link io.jccl.device.Buffer}s and depends on no framework.
 */
@org.jspecify.annotations.NullMarked
package io.jccl.parallel;

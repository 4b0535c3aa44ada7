/**
 * What trainers build from collectives: process groups, gradients averaged while they are computed,
 * and layers whose matrices are spread over ranks. Everything works on {@link
 * io.jccl.device.Buffer}, so that any framework's memory will do, and on every engine; what does
 * arithmetic itself needs host memory, or cuBLAS on a GPU, and says so.
 */
@NullMarked
package io.jccl.parallel;

import org.jspecify.annotations.NullMarked;

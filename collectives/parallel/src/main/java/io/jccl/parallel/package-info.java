/**
 * Building blocks for distributed training: meshes of process groups, gradient averaging overlapped
 * with the backward pass, tensor, pipeline and expert parallelism, and parameter servers.
 * Everything works on {@link io.jccl.device.Buffer}, so on the memory of any framework, and on
 * every engine, except that classes that compute require host memory, or cuBLAS on a GPU, as
 * documented there.
 */
@NullMarked
package io.jccl.parallel;

import org.jspecify.annotations.NullMarked;

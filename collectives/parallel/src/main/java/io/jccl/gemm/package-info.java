/** Matrix products on the host and on GPUs, over views of buffers. */
@NullMarked
package io.jccl.gemm;

import org.jspecify.annotations.NullMarked;

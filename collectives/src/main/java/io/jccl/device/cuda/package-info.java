/** CUDA devices, streams, events and memory. Not exported. */
@NullMarked
package io.jccl.device.cuda;

import org.jspecify.annotations.NullMarked;

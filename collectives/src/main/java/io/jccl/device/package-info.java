/** Devices, buffers in their memory, and the streams and events that order their work. */
@NullMarked
package io.jccl.device;

import org.jspecify.annotations.NullMarked;

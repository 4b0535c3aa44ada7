/** The host device: memory, streams and events on the CPU. */
@NullMarked
package io.jccl.device.host;

import org.jspecify.annotations.NullMarked;

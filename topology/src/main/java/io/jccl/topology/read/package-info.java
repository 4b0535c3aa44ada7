/** Reads topologies: the output of {@code nvidia-smi}, and Linux's {@code /sys}. */
@NullMarked
package io.jccl.topology.read;

import org.jspecify.annotations.NullMarked;

/** Reads topologies: what {@code nvidia-smi} prints, and what Linux says in {@code /sys}. */
@NullMarked
package io.jccl.topology.read;

import org.jspecify.annotations.NullMarked;

/** The graph of a machine: GPUs, NICs, switches, bridges and CPUs, and the links between them. */
@NullMarked
package io.jccl.topology;

import org.jspecify.annotations.NullMarked;

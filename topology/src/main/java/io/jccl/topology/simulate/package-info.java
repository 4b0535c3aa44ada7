/** Simulates a plan on the graph: correct data on every rank, and the time it takes. */
@NullMarked
package io.jccl.topology.simulate;

import org.jspecify.annotations.NullMarked;

/** Plays a plan on the graph: right data on every rank, and the time it takes. */
@NullMarked
package io.jccl.topology.simulate;

import org.jspecify.annotations.NullMarked;

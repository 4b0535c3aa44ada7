/** Predicts how long a collective takes, per algorithm and protocol, and picks the fastest. */
@NullMarked
package io.jccl.topology.cost;

import org.jspecify.annotations.NullMarked;

/** Pictures of a topology and a plan. */
@NullMarked
package io.jccl.topology.draw;

import org.jspecify.annotations.NullMarked;

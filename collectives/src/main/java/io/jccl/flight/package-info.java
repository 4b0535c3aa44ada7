/** The flight recorder: the latest operations of each rank, and the report on a timeout. */
@NullMarked
package io.jccl.flight;

import org.jspecify.annotations.NullMarked;

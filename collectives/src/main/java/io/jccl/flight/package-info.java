/** The flight recorder: the last operations of each rank, and what it reports on a timeout. */
@NullMarked
package io.jccl.flight;

import org.jspecify.annotations.NullMarked;

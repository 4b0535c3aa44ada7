/** {@code jccl flight}: the recordings of all ranks, merged and explained. */
@NullMarked
package io.jccl.cli.flight;

import org.jspecify.annotations.NullMarked;

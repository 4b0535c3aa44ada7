/** {@code jccl flight}: the recordings of all ranks, merged and explained. */
@NullMarked
package io.jccl.bench.flight;

import org.jspecify.annotations.NullMarked;

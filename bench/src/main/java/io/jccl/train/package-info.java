/** The training program behind {@code jccl train}. */
@NullMarked
package io.jccl.train;

import org.jspecify.annotations.NullMarked;

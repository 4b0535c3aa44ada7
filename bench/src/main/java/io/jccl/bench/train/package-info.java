/** The training program behind {@code jccl train-demo}. */
@NullMarked
package io.jccl.bench.train;

import org.jspecify.annotations.NullMarked;

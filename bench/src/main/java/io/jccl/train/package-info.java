/** The training programs behind {@code jccl train-demo} and {@code jccl train}. */
@NullMarked
package io.jccl.train;

import org.jspecify.annotations.NullMarked;

/**
 * One small network in several frameworks, trained data-parallel: {@link io.jccl.examples.Training}
 * has what all of them share. Run by {@code bench/examples/run}.
 */
@NullMarked
package io.jccl.examples;

import org.jspecify.annotations.NullMarked;

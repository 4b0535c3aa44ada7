/**
 * {@code jccl fit-demo}: the largest model that trains within fixed memory budgets, with and
 * without each technique.
 */
@NullMarked
package io.jccl.train.fit;

import org.jspecify.annotations.NullMarked;

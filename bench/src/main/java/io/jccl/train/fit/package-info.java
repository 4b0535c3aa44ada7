/** {@code jccl fit-demo}: how large a model trains within fixed budgets, with and without what. */
@NullMarked
package io.jccl.train.fit;

import org.jspecify.annotations.NullMarked;

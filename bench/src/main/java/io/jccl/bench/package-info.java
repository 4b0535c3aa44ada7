/** Measurements of the benchmark commands. */
@NullMarked
package io.jccl.bench;

import org.jspecify.annotations.NullMarked;

/** Reductions on the CPU. */
@NullMarked
package io.jccl.kernel;

import org.jspecify.annotations.NullMarked;

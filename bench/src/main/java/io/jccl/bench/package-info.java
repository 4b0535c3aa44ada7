/** The {@code jccl} command line. */
@NullMarked
package io.jccl.bench;

import org.jspecify.annotations.NullMarked;

/** The {@code jccl} command line. */
@NullMarked
package io.jccl.cli;

import org.jspecify.annotations.NullMarked;

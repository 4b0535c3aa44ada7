/** Commands {@code train} and {@code fit-demo}. */
@NullMarked
package io.jccl.cli.train;

import org.jspecify.annotations.NullMarked;

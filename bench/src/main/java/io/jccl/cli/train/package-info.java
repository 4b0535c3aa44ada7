/** Training and the largest model that fits, on the command line. */
@NullMarked
package io.jccl.cli.train;

import org.jspecify.annotations.NullMarked;

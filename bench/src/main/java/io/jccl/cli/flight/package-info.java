/** {@code jccl flight}: merges and analyses the recordings of all ranks. */
@NullMarked
package io.jccl.cli.flight;

import org.jspecify.annotations.NullMarked;

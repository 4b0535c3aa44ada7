/** What {@code jccl topo} finds out about a machine, and how it says it. */
@NullMarked
package io.jccl.cli.topo;

import org.jspecify.annotations.NullMarked;

/** Command {@code plan}: the memory planner. */
@NullMarked
package io.jccl.cli.plan;

import org.jspecify.annotations.NullMarked;

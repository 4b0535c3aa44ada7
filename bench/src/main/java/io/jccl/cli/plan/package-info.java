/** The memory planner on the command line. */
@NullMarked
package io.jccl.cli.plan;

import org.jspecify.annotations.NullMarked;

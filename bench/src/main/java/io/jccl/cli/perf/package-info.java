/** Benchmark commands and the reports they print. */
@NullMarked
package io.jccl.cli.perf;

import org.jspecify.annotations.NullMarked;

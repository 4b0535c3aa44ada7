/** JMH benchmarks: {@code jccl jmh}. */
@NullMarked
package io.jccl.bench.jmh;

import org.jspecify.annotations.NullMarked;

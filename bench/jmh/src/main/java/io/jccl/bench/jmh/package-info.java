/**
 * JMH benchmarks: {@code jccl jmh}. Two ranks are threads of the benchmark's JVM; one is JMH's, the
 * other a {@link io.jccl.bench.jmh.Peer}. With {@code -prof gc} every one of them shows 0 bytes per
 * operation.
 */
@NullMarked
package io.jccl.bench.jmh;

import org.jspecify.annotations.NullMarked;

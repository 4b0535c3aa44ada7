/**
 * Hardware probes: the performance of this machine's compute, memory and links, and its evaluation.
 */
@NullMarked
package io.jccl.bench.probe;

import org.jspecify.annotations.NullMarked;

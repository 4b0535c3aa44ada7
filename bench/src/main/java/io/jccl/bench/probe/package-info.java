/** Hardware probes: what compute, memory and links of this machine do, and what is made of that. */
@NullMarked
package io.jccl.bench.probe;

import org.jspecify.annotations.NullMarked;

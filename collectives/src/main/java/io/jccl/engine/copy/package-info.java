/** Collectives by copies between the GPUs of one process. */
@NullMarked
package io.jccl.engine.copy;

import org.jspecify.annotations.NullMarked;

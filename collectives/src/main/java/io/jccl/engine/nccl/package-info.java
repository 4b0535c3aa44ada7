/** The engine over NCCL: ranks are GPUs. Not exported. */
@NullMarked
package io.jccl.engine.nccl;

import org.jspecify.annotations.NullMarked;

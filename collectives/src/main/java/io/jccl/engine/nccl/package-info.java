/** The engine over NCCL: ranks are GPUs. Not exported. */
@NullMarked
package io.jccl.nccl;

import org.jspecify.annotations.NullMarked;

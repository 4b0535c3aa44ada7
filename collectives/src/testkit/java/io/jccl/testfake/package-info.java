/** Stand-ins for NCCL and CUDA, for tests. */
@NullMarked
package io.jccl.testfake;

import org.jspecify.annotations.NullMarked;

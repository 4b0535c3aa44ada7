/** Stand-ins for NCCL and CUDA, for tests. */
@NullMarked
package io.jccl.testdouble;

import org.jspecify.annotations.NullMarked;

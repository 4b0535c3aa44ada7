/** Computation on elements in place, on the host or on a GPU. */
@NullMarked
package io.jccl.compute;

import org.jspecify.annotations.NullMarked;

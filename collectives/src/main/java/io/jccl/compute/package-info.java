/** Work on elements where they are: on the host or on a GPU. */
@NullMarked
package io.jccl.compute;

import org.jspecify.annotations.NullMarked;

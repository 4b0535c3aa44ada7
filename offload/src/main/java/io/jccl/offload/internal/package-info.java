/** What the packages of this module share; not exported. */
@NullMarked
package io.jccl.offload.internal;

import org.jspecify.annotations.NullMarked;

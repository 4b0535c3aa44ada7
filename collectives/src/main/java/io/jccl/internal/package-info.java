/** Code that several modules of JCCL share; not part of the API. */
@NullMarked
package io.jccl.internal;

import org.jspecify.annotations.NullMarked;

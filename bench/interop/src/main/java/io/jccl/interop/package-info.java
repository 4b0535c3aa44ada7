/** Gradients of other frameworks, averaged over processes where they lie. */
@NullMarked
package io.jccl.interop;

import org.jspecify.annotations.NullMarked;

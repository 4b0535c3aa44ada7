/** Single functions of the C library, the driver and the linker that other modules of JCCL call. */
@NullMarked
package io.jccl.bindings.internal;

import org.jspecify.annotations.NullMarked;

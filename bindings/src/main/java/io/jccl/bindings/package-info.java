/** Discovery of native libraries, and one thin typed call table for each. */
@NullMarked
package io.jccl.bindings;

import org.jspecify.annotations.NullMarked;

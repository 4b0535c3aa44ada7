/** What JCCL's other modules use as well: threads that work together, mixing of numbers. */
@NullMarked
package io.jccl.engine.shared;

import org.jspecify.annotations.NullMarked;

/**
 * What every engine shares: the operations as data, argument checks, groups, threads that work
 * together. Exported to JCCL's own modules alone.
 */
@NullMarked
package io.jccl.engine;

import org.jspecify.annotations.NullMarked;

/** What every engine shares: the operations as data, argument checks, groups. Not exported. */
@NullMarked
package io.jccl.engine;

import org.jspecify.annotations.NullMarked;

/** Code shared by all engines: operations as data, argument checks, groups. Not exported. */
@NullMarked
package io.jccl.engine;

import org.jspecify.annotations.NullMarked;

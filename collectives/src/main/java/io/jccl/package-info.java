/**
 * Collective communication between ranks.
 *
 * <p>A {@link io.jccl.Communicator} joins a fixed number of ranks; each holds its own object and
 * calls the same operations in the same order. The same program runs on the embedded host engine,
 * with ranks as threads of one JVM or as processes of one machine:
 *
 * {@snippet class="snippets.Collectives" region="average"}
 *
 * }
 */
@NullMarked
package io.jccl;

import org.jspecify.annotations.NullMarked;

/**
 * Collective communication between ranks.
 *
 * <p>A {@link io.jccl.Communicator} connects a fixed number of ranks; each has its own object and
 * calls the same operations in the same order. This program runs on the built-in host engine, with
 * ranks as threads of one JVM or as processes of one machine, and, with {@code
 * Communicator.fromEnvironment(Cuda.device(i), CommunicatorOptions.DEFAULT)}, on GPUs over NCCL:
 *
 * {@snippet class="snippets.Collectives" region="average"}
 *
 * }
 */
@NullMarked
package io.jccl;

import org.jspecify.annotations.NullMarked;

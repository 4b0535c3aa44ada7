/**
 * Collective communication between ranks.
 *
 * <p>A {@link io.jccl.Communicator} joins a fixed number of ranks; each holds its own object and
 * calls the same operations in the same order. The same program runs on the embedded host engine,
 * with ranks as threads of one JVM or as processes of one machine:
 *
 * {@snippet :
 * try (var comm = Communicator.fromEnvironment();
 *         var gradients = comm.device().allocate(DataType.FLOAT32, 1 << 20)) {
 *     // ... fill gradients ...
 *     comm.allReduce(gradients, ReduceOp.AVG, comm.device().defaultStream());
 * }
 * }
 */
@NullMarked
package io.jccl;

import org.jspecify.annotations.NullMarked;

/** The MPI engine: ranks are processes of an MPI job, and the host's MPI moves the data. */
@NullMarked
package io.jccl.engine.mpi;

import org.jspecify.annotations.NullMarked;

/* What bindings are generated from: MPI with Open MPI's ABI. The names to bind stand in mpi.includes. */
#include <mpi.h>

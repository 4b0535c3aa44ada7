/* What bindings are generated from: the CUDA driver. The names to bind stand in cuda.includes. */
#include <cuda.h>

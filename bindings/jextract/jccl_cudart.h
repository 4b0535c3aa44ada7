/* What bindings are generated from: the CUDA runtime. The names to bind stand in cudart.includes. */
#include <cuda_runtime_api.h>

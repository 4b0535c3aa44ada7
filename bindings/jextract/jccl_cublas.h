/* What bindings are generated from: cuBLAS. The names to bind stand in cublas.includes. */
#include <cublas_v2.h>

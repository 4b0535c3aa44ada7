/* What bindings are generated from: NCCL. The names to bind stand in nccl.includes. */
#include <nccl.h>

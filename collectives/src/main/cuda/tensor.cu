/* The kernels for tensor cores, as an image of its own: older devices do not take it. */
#include "kernel.h"
#include "heads.h"
#include "tensor.h"

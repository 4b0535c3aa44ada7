/* All kernels, as one image. */
#include "kernel.h"
#include "elementwise.h"
#include "norm.h"
#include "rows.h"
#include "update.h"

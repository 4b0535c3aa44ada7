/* All kernels, as one image. */
#include "kernel.h"
#include "elementwise.h"
#include "layers.h"
#include "loss.h"
#include "attention.h"
#include "norm.h"
#include "rows.h"
#include "update.h"

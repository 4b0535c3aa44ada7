/*
 * libcuda.so.1: the one function that JCCL looks up in the driver itself; the others are handed out
 * by the fake of the runtime. In a folder of its own, since most tests are of machines without a
 * driver.
 */
#include "fake.h"

/* cuda.h, cuDevicePrimaryCtxGetState. The flags are those of a context that the runtime made. */
JCF_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (flags == NULL || active == NULL) {
    return cudaErrorInvalidValue; /* the number of CUDA_ERROR_INVALID_VALUE */
  }
  *flags = 8; /* cudaDeviceMapHost */
  *active = jccl_fake_contexts() >> device & 1;
  return cudaSuccess;
}

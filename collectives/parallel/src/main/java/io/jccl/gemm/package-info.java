/** Products of matrices that may be larger than one device, split over ranks and streamed. */
@NullMarked
package io.jccl.gemm;

import org.jspecify.annotations.NullMarked;

/** How products of matrices are computed: on the host's cores, and by cuBLAS. */
@org.jspecify.annotations.NullMarked
package io.jccl.parallel.gemm;

/* Between kernel_fake.c, which loads and launches, and kernel_cpu.cc, which runs. */
#ifndef JCCL_KERNEL_FAKE_H
#define JCCL_KERNEL_FAKE_H

#ifdef __cplusplus
extern "C" {
#endif

struct jcf_host_parameter {
  unsigned size;
  unsigned align; /* of what a pointer points to; 0 for another type */
};

struct jcf_host_kernel {
  const char *name;
  void *function_pointer;
  void (*thread)(void *function_pointer, const char *const *arguments); /* of one block */
  const struct jcf_host_parameter *parameters;
  int nparameters;
  struct jcf_host_kernel *next;
};

extern struct jcf_host_kernel *jcf_host_kernels;

/* Runs all blocks; reversed turns the order of blocks and threads round. */
void jcf_run_blocks(const struct jcf_host_kernel *kernel, const char *const *arguments,
    const unsigned grid[3], const unsigned block[3], int reversed);

#ifdef __cplusplus
}
#endif

#endif

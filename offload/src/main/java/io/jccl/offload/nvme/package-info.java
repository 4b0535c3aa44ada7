/** Tier NVMe: named regions in a file on a local drive, checked, and committed step by step. */
@NullMarked
package io.jccl.offload.nvme;

import org.jspecify.annotations.NullMarked;

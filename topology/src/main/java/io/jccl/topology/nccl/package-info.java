/** NCCL's XML files: topology (read and write) and graph (write). */
@NullMarked
package io.jccl.topology.nccl;

import org.jspecify.annotations.NullMarked;

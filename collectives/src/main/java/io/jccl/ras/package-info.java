/** NCCL's own view of a job: its RAS service, read over TCP. For these modules only. */
@NullMarked
package io.jccl.ras;

import org.jspecify.annotations.NullMarked;

/** Commands that start and end the processes of a job. */
@NullMarked
package io.jccl.cli.launch;

import org.jspecify.annotations.NullMarked;

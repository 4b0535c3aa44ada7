/** Commands that start and end processes of a job. */
@NullMarked
package io.jccl.cli.launch;

import org.jspecify.annotations.NullMarked;

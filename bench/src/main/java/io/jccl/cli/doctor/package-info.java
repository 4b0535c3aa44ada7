/** What {@code jccl doctor} finds out about a machine, and what it makes of it. */
@NullMarked
package io.jccl.cli.doctor;

import org.jspecify.annotations.NullMarked;

/** {@code jccl doctor}: reads a machine's properties and reports its problems. */
@NullMarked
package io.jccl.cli.doctor;

import org.jspecify.annotations.NullMarked;

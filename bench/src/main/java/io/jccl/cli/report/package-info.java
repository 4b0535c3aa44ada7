/** {@code jccl report}, and the pages of all measuring commands, made from their JSON. */
@NullMarked
package io.jccl.cli.report;

import org.jspecify.annotations.NullMarked;

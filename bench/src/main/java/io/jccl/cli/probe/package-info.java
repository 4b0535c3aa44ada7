/** The command that measures what this machine's hardware does. */
@NullMarked
package io.jccl.cli.probe;

import org.jspecify.annotations.NullMarked;

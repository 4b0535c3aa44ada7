/** Commands that check the library on this machine. */
@NullMarked
package io.jccl.cli.check;

import org.jspecify.annotations.NullMarked;

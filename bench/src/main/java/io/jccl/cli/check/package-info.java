/** Commands that check the library on the machine at hand. */
@NullMarked
package io.jccl.cli.check;

import org.jspecify.annotations.NullMarked;

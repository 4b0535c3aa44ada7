/** What commands share: options, amounts, progress, files, versions. */
@NullMarked
package io.jccl.cli.shell;

import org.jspecify.annotations.NullMarked;

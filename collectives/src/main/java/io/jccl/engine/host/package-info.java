/** The embedded engine: ranks as threads of a JVM or processes of a machine. Not exported. */
@NullMarked
package io.jccl.engine.host;

import org.jspecify.annotations.NullMarked;

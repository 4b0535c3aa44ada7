/** What several modules of JCCL share and no program sees. */
@NullMarked
package io.jccl.internal;

import org.jspecify.annotations.NullMarked;

/**
 * Training state sharded over the ranks of a communicator, as the ZeRO stages of arXiv 1910.02054
 * do, on any tier (arXiv 2101.06840, arXiv 2104.07857).
 *
 * <p>Every rank runs this:
 *
 * {@snippet class="snippets.Offload" region="zero"}
 */
@NullMarked
package io.jccl.offload.zero;

import org.jspecify.annotations.NullMarked;

/** Memory on several tiers, and the engine that moves it behind compute. */
@NullMarked
package io.jccl.offload;

import org.jspecify.annotations.NullMarked;

/**
 * Memory on several tiers, and the engine that moves data between them concurrently with compute.
 */
@NullMarked
package io.jccl.offload;

import org.jspecify.annotations.NullMarked;

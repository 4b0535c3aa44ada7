/**
 * How much memory training a transformer needs in each tier, how much it moves and computes,
 * whether it fits, and the largest model that fits. Formulas only: nothing here touches a device.
 */
@NullMarked
package io.jccl.offload.memplan;

import org.jspecify.annotations.NullMarked;

/**
 * What training a transformer needs of each tier of memory, how much it moves and computes, what
 * fits, and the largest model that does. Formulas only: nothing here touches a device.
 */
@NullMarked
package io.jccl.offload.memplan;

import org.jspecify.annotations.NullMarked;

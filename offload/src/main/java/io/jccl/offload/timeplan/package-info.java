/**
 * Predicts the time of a training step on a described machine, from the memory plan, a roofline of
 * the device and the topology's cost model.
 */
@NullMarked
package io.jccl.offload.timeplan;

import org.jspecify.annotations.NullMarked;

package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.train.GptShape.Weight;

/**
 * A weight and a rank's share of it.
 *
 * @param weight the whole weight
 * @param values float32, valid while its layer is loaded
 * @param gradient float32, added to while its layer is open
 */
record Parameter(Weight weight, Buffer values, Buffer gradient) {}

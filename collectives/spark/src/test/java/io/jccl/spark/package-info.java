/** Tests on real barrier stages. */
@NullMarked
package io.jccl.spark;

import org.jspecify.annotations.NullMarked;

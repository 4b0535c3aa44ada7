/**
 * What trainers need on top of collectives: groups of ranks, gradients reduced while backward still
 * runs, replicas kept equal, and a parameter server to compare with.
 */
@NullMarked
package io.jccl.parallel;

import org.jspecify.annotations.NullMarked;

/** Chooses rings, trees and exchanges on a topology, and states how close to the bound they are. */
@NullMarked
package io.jccl.topology.plan;

import org.jspecify.annotations.NullMarked;

/** Command {@code topo}: analysis of a machine's topology, and its reports. */
@NullMarked
package io.jccl.cli.topo;

import org.jspecify.annotations.NullMarked;

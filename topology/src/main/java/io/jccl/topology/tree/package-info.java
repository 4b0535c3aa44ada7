/** What readers of a PCI tree have in common. Not exported. */
@NullMarked
package io.jccl.topology.tree;

import org.jspecify.annotations.NullMarked;

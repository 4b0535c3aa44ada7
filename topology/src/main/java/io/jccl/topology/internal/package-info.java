/**
 * What several packages of this module share: the PCI tree of a machine, XML escaping. Not
 * exported.
 */
@NullMarked
package io.jccl.topology.internal;

import org.jspecify.annotations.NullMarked;

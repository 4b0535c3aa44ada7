/**
 * How ranks find each other before they have an engine: information about each rank, the
 * compatibility check, and the processes of one machine.
 */
@NullMarked
package io.jccl.bootstrap;

import org.jspecify.annotations.NullMarked;

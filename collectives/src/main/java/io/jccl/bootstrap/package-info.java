/**
 * How ranks find each other before they have an engine: what each reports of itself, whether all
 * fit, and the processes of one machine.
 */
@NullMarked
package io.jccl.bootstrap;

import org.jspecify.annotations.NullMarked;

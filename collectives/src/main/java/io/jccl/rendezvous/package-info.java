/** How ranks find each other before they have a communicator. */
@NullMarked
package io.jccl.rendezvous;

import org.jspecify.annotations.NullMarked;

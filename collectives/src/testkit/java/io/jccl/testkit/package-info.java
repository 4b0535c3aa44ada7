/** What tests of several modules share; compiled with the tests of each. */
@NullMarked
package io.jccl.testkit;

import org.jspecify.annotations.NullMarked;

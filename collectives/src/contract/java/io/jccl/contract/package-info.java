/** What every engine has to do, as tests that run on any of them. */
@NullMarked
package io.jccl.contract;

import org.jspecify.annotations.NullMarked;

/** Connects the factory methods of the public API to the engines and devices behind them. */
@NullMarked
package io.jccl.provider;

import org.jspecify.annotations.NullMarked;

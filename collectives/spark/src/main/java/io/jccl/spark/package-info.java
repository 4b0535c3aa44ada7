/**
 * Communicators among the tasks of a barrier stage of Apache Spark.
 *
 * <p>Needs Spark 4.1.1 or newer on JDK 25, with the flag {@code
 * --enable-native-access=ALL-UNNAMED}, which Spark's launcher passes to driver and executors.
 */
@NullMarked
package io.jccl.spark;

import org.jspecify.annotations.NullMarked;

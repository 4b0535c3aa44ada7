/** Charts and report pages: self-contained SVG and HTML. */
@NullMarked
package io.jccl.bench.report;

import org.jspecify.annotations.NullMarked;

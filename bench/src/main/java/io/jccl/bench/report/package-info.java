/** Charts and the pages that hold them: SVG and HTML that need nothing from outside. */
@NullMarked
package io.jccl.bench.report;

import org.jspecify.annotations.NullMarked;

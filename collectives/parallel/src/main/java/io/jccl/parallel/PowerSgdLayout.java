package io.jccl.parallel;

import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.List;

/** Which gradients of a bucket are sent as thin matrices, and where these lie. */
final class PowerSgdLayout {
    /**
     * A matrix that starts at an element of the bucket, and its factors.
     *
     * @param p start of P in the first buffer
     * @param q start of Q in the second
     */
    record Factored(long at, int rows, int columns, int rank, long p, long q) {}

    /** Elements that are sent uncompressed, at an element of the first buffer. */
    record Rest(long at, long count, long to) {}

    final List<Factored> matrices = new ArrayList<>();
    final List<Rest> rests = new ArrayList<>();

    /** Elements of all P and the uncompressed ones after them. */
    final long first;

    /** Elements of all Q. */
    final long second;

    PowerSgdLayout(Bucket.Plan plan, List<Parameter> parameters, int most) {
        long pEnd = 0;
        long qEnd = 0;
        for (int i = 0; i < plan.members().size(); i++) {
            Parameter parameter = parameters.get(plan.members().get(i));
            long at = plan.offsets().get(i);
            long rank = Math.min(most, Math.min(parameter.rows(), parameter.columns()));
            long thin = rank * (parameter.rows() + parameter.columns());
            if (thin >= parameter.count() || thin > Integer.MAX_VALUE) {
                // Stored after all P.
                rests.add(new Rest(at, parameter.count(), 0));
                continue;
            }
            int rows = (int) parameter.rows();
            int columns = (int) parameter.columns();
            matrices.add(new Factored(at, rows, columns, (int) rank, pEnd, qEnd));
            pEnd += rank * rows;
            qEnd += rank * columns;
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            rests.set(i, new Rest(r.at, r.count, pEnd));
            pEnd += r.count;
        }
        first = pEnd;
        second = qEnd;
    }
}

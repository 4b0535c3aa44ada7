package io.jccl.parallel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Adaptive summation (Maleki et al., <a href="https://arxiv.org/abs/2006.02924">arXiv
 * 2006.02924</a>, section 3): two gradients a and b of a parameter become
 *
 * <pre>
 * (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
 * </pre>
 *
 * which is their sum if they are orthogonal, and their mean if they are equal. Ranks are combined
 * in pairs at doubling distances; both ranks of a pair compute the same bits.
 */
final class AdasumExchange extends Exchange {
    private final long[] starts;
    private final long[] counts;
    private final Buffer other;
    private final Runnable[] exchanges;
    private final Runnable[] combinations;
    private @Nullable Stream stream;

    AdasumExchange(
            Communicator comm,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            List<AutoCloseable> owned) {
        super(comm, bucket, owned);
        this.starts = plan.offsets().stream().mapToLong(Long::longValue).toArray();
        this.counts = plan.members().stream().mapToLong(p -> parameters.get(p).count()).toArray();
        int levels = Integer.numberOfTrailingZeros(comm.size());
        this.exchanges = new Runnable[levels];
        this.combinations = new Runnable[levels];
        for (int l = 0; l < levels; l++) {
            int partner = comm.rank() ^ 1 << l;
            exchanges[l] = () -> exchange(partner);
            combinations[l] = () -> combine(partner);
        }
        this.other = own(comm.device().allocate(plan.type(), bucket.count()));
    }

    @Override
    void enqueue(Stream on) {
        stream = on;
        for (int l = 0; l < exchanges.length; l++) {
            Group.run(comm, exchanges[l]);
            on.launchHostFunction(combinations[l]);
        }
    }

    private void exchange(int partner) {
        Stream on = stream;
        if (on != null) {
            comm.send(bucket, partner, on);
            comm.recv(other, partner, on);
        }
    }

    private void combine(int partner) {
        MemorySegment mine = bucket.asSegment();
        MemorySegment theirs = other.asSegment();
        boolean first = comm.rank() < partner;
        for (int t = 0; t < starts.length; t++) {
            combine(first ? mine : theirs, first ? theirs : mine, mine, starts[t], counts[t]);
        }
    }

    private static void combine(
            MemorySegment a, MemorySegment b, MemorySegment result, long start, long count) {
        double both = 0;
        double ofA = 0;
        double ofB = 0;
        for (long i = start; i < start + count; i++) {
            double x = a.getAtIndex(JAVA_FLOAT, i);
            double y = b.getAtIndex(JAVA_FLOAT, i);
            both += x * y;
            ofA += x * x;
            ofB += y * y;
        }
        // Of a gradient that is 0 everywhere the factor does not matter.
        double p = ofA == 0 ? 1 : 1 - both / (2 * ofA);
        double q = ofB == 0 ? 1 : 1 - both / (2 * ofB);
        for (long i = start; i < start + count; i++) {
            double sum = p * a.getAtIndex(JAVA_FLOAT, i) + q * b.getAtIndex(JAVA_FLOAT, i);
            result.setAtIndex(JAVA_FLOAT, i, (float) sum);
        }
    }

    @Override
    long bytes() {
        return exchanges.length * bucket.byteSize();
    }
}

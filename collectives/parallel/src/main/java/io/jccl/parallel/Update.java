package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** What a {@link ParameterServer} does with gradients. */
@FunctionalInterface
public interface Update {
    /**
     * Applies gradients to parameters. One call at a time on each server, from threads that differ.
     *
     * @param parameters the server's part of them, to be changed
     * @param gradient as many elements of the same type: the mean over the workers, or one worker's
     *     with bounded staleness. It may be changed
     * @param first where the part starts among all parameters, in elements
     * @param step how many updates this server made before
     */
    void apply(Buffer parameters, Buffer gradient, long first, long step);

    /**
     * Plain gradient descent: parameter -= rate * gradient.
     *
     * @param rate the learning rate
     * @return the update, for float32 and float64
     */
    static Update sgd(float rate) {
        return (parameters, gradient, first, step) -> {
            MemorySegment p = parameters.asSegment();
            MemorySegment g = gradient.asSegment();
            long n = parameters.count();
            if (parameters.dataType() == DataType.FLOAT32) {
                ValueLayout.OfFloat f = ValueLayout.JAVA_FLOAT;
                for (long i = 0; i < n; i++) {
                    p.setAtIndex(f, i, p.getAtIndex(f, i) - rate * g.getAtIndex(f, i));
                }
            } else {
                ValueLayout.OfDouble d = ValueLayout.JAVA_DOUBLE;
                for (long i = 0; i < n; i++) {
                    p.setAtIndex(d, i, p.getAtIndex(d, i) - rate * g.getAtIndex(d, i));
                }
            }
        };
    }
}

package io.jccl.parallel;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * How a {@link ParameterServer} applies gradients.
 *
 * <p><b>Threads:</b> {@link #apply} says which call it; those that {@link #sgd} makes are
 * immutable.
 */
@FunctionalInterface
public interface Update {
    /**
     * Applies gradients to parameters. Calls on a server are serialized, but may come from
     * different threads. With {@link ServerOptions#withDevice} and a GPU both buffers are there,
     * and work belongs on its default stream, such as a step of an optimizer whose state is on the
     * GPU.
     *
     * @param parameters the server's range of the parameters, to be updated
     * @param gradient as many elements of the same type: the mean over the workers, or one worker's
     *     with bounded staleness. It may be overwritten
     * @param first index of the range's first element among all parameters
     * @param step number of earlier updates on this server
     */
    void apply(Buffer parameters, Buffer gradient, long first, long step);

    /**
     * Plain gradient descent on a device: parameter -= rate * gradient.
     *
     * @param rate the learning rate
     * @param compute of the servers' device; the caller closes it after the parameter server
     * @return the update, for float32 and float64
     */
    static Update sgd(float rate, Compute compute) {
        return (parameters, gradient, first, step) ->
                compute.axpy(-rate, gradient, parameters, compute.device().defaultStream());
    }

    /**
     * Plain gradient descent on the host: parameter -= rate * gradient.
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

package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Moves the rows of a rank's tokens to the experts and back, by the router's assignments, which are
 * computed on the host. There is one implementation per kind of memory. The tokens' buffers may
 * have more elements.
 */
abstract sealed class TokenMover permits HostTokenMover, DeviceTokenMover {
    final Communicator comm;
    final ExpertOptions options;
    final ExpertRouter router;

    /** Rows of each of the experts' blocks. */
    final long maxRows;

    final Stream stream;

    /** The experts' blocks; the gradients are null without a backward pass. */
    final Buffer inputs;

    final Buffer outputs;
    final @Nullable Buffer outputGradients;
    final @Nullable Buffer inputGradients;

    /** The block of outputs, and as many rows after it as the subclass needs. */
    final Buffer outputRows;

    /** The same of the gradients of inputs; {@link #outputRows} without a backward pass. */
    final Buffer gradientRows;

    /** Closed with the dispatch. */
    final List<AutoCloseable> owned;

    /**
     * Allocates the blocks.
     *
     * @param after rows to allocate after those of outputs and of the gradients of inputs
     */
    TokenMover(
            Communicator comm,
            ExpertOptions options,
            ExpertRouter router,
            long maxRows,
            long after,
            List<AutoCloseable> owned) {
        this.comm = comm;
        this.options = options;
        this.router = router;
        this.maxRows = maxRows;
        this.owned = owned;
        stream = comm.device().defaultStream();
        boolean backward = options.backward();
        inputs = ownRows(maxRows);
        outputRows = ownRows(maxRows + after);
        outputs = rows(outputRows, maxRows);
        outputGradients = backward ? ownRows(maxRows) : null;
        gradientRows = backward ? ownRows(maxRows + after) : outputRows;
        inputGradients = backward ? rows(gradientRows, maxRows) : null;
    }

    /** Creates the mover for the communicator's device; what it allocates is owned at once. */
    static TokenMover of(
            Communicator comm,
            ExpertOptions options,
            ExpertRouter router,
            long maxRows,
            List<AutoCloseable> owned) {
        return comm.device().kind() == Device.Kind.HOST
                ? new HostTokenMover(comm, options, router, maxRows, owned)
                : new DeviceTokenMover(comm, options, router, maxRows, owned);
    }

    final <T extends AutoCloseable> T own(T resource) {
        owned.add(resource);
        return resource;
    }

    /** Allocates rows of tokens on the device. */
    final Buffer ownRows(long count) {
        return own(
                comm.device()
                        .allocate(options.type(), Math.multiplyExact(count, options.features())));
    }

    /** Numbers that ranks exchange in a step. */
    final long countsOfAll() {
        return (long) comm.size() * DispatchPlan.record(options.router().experts());
    }

    /** This rank's part of a buffer of {@link #countsOfAll}. */
    final Buffer ownCounts(Buffer all) {
        int record = DispatchPlan.record(options.router().experts());
        return all.slice((long) comm.rank() * record, record);
    }

    /** The first rows of a buffer. */
    final Buffer rows(Buffer of, long count) {
        long elements = count * options.features();
        return elements == of.count() ? of : of.slice(0, elements);
    }

    /** The counts of all ranks, in host memory; the plan reads and writes them. */
    abstract Buffer counts();

    /** Exchanges the counts. */
    abstract void gatherCounts();

    /** Logits that the host can read. */
    abstract Buffer readable(Buffer logits, int tokens);

    /** Prepares a step, once the counts of all ranks are known. */
    abstract void layOut(DispatchPlan plan);

    /** Sends tokens to the inputs of their experts. */
    abstract void dispatch(Buffer tokens);

    /** Sums each token's outputs, times their weights. */
    abstract void combine(Buffer result);

    /**
     * Sends weighted gradients of the result to the experts, and computes the gradients of the
     * weights.
     */
    abstract void combineBackward(Buffer resultGradient);

    /** Sums each token's gradients. */
    abstract void dispatchBackward(Buffer tokensGradient);

    /** Computes the gradients of the logits by the router. */
    abstract void routeBackward(Buffer logitsGradient, double balance, double z);
}

package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.compute.Mixture;
import io.jccl.compute.RandomFactors;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.internal.SplitMix;
import io.jccl.kernel.MixtureLoops;
import io.jccl.parallel.ExpertDispatch;
import io.jccl.parallel.ExpertOptions;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * Dropout between the two matrices of experts, in training (Switch, arXiv 2101.03961, section 2.4).
 * What is dropped depends only on block, expert, the token's place and the column. The places are
 * sent to the experts like the tokens, by a separate dispatch with the same routing.
 */
final class ExpertDropout {
    private final ExpertDispatch places;

    /** The places of a rank's tokens, before they are sent, and where the host writes them. */
    private final Buffer own;

    private final Buffer staging;
    private final Stream stream;
    private final Mixture mixture;
    private final double rate;
    private final long seed;
    private final Part part;

    /** Columns of this rank. */
    private final int width;

    /** Rows of experts, in the order of {@link #add}. */
    private final List<Piece> pieces = new ArrayList<>();

    /** Rows of an expert. */
    private record Piece(RandomFactors factors, Buffer places, Buffer squared, Buffer gradient) {}

    /**
     * Creates the dropout of a block and slot.
     *
     * @param operations of the device
     * @param comm ranks that the experts are distributed over
     * @param like options of the tokens' dispatch
     * @param own two elements for each token
     * @param rate probability that an activation is dropped
     * @param seed of this block
     * @param part for the first of this rank's experts and columns
     * @param width columns of this rank
     * @param owned owner of the memory
     */
    ExpertDropout(
            Operations operations,
            Communicator comm,
            ExpertOptions like,
            Buffer own,
            double rate,
            long seed,
            Part part,
            int width,
            Owned owned) {
        mixture = operations.compute().mixture();
        this.own = own;
        this.rate = rate;
        this.seed = seed;
        this.part = part;
        this.width = width;
        Device device = comm.device();
        stream = device.defaultStream();
        staging =
                device.kind() == Device.Kind.CUDA
                        ? owned.add(Cuda.pinned(DataType.FLOAT32, own.count()))
                        : own;
        places =
                owned.add(
                        ExpertDispatch.create(
                                comm,
                                ExpertOptions.of(like.router(), 2)
                                        .withBackward(false)
                                        .withFixedBlocks(like.fixedBlocks())));
    }

    /** Sends the places of tokens to their experts. */
    void route(Buffer logits, int tokens, long place) {
        MemorySegment to = staging.asSegment();
        for (int t = 0; t < tokens; t++) {
            MixtureLoops.setPlace(place + t, t, to);
        }
        if (staging != own) {
            // Routing waits for the stream, so the copy is over before the next one is written.
            stream.copy(staging, own);
        }
        places.route(logits, tokens, place);
        places.dispatch(own);
    }

    /** Discards the experts' rows. */
    void clear() {
        pieces.clear();
    }

    /**
     * Adds the rows of an expert; dropout of padding rows does not matter.
     *
     * @param expert of this rank
     * @param first row of the tokens' dispatch, and of this one
     * @param rows number of rows
     * @param squared activations of these rows
     * @param gradient their gradient
     */
    void add(int expert, long first, long rows, Buffer squared, Buffer gradient) {
        long drawn = SplitMix.mix(seed + part.firstExpert() + expert);
        long columns = (long) width * part.tensorRanks();
        long column = (long) width * part.tensorRank();
        pieces.add(
                new Piece(
                        new RandomFactors(0, 0, rate, drawn, columns, column),
                        places.inputs().slice(2 * first, 2 * rows),
                        squared,
                        gradient));
    }

    /**
     * Multiplies activations by 0 or by 1 / (1 - rate).
     *
     * @param gradients whether to multiply their gradients instead
     */
    void drop(boolean gradients) {
        for (int i = 0; i < pieces.size(); i++) {
            Piece p = pieces.get(i);
            Buffer rows = gradients ? p.gradient : p.squared;
            mixture.scaleRandomly(p.factors, rows, width, p.places, 0, rows, stream);
        }
    }
}

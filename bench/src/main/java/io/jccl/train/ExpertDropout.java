package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.ExpertDispatch;
import io.jccl.parallel.ExpertOptions;
import io.jccl.parallel.RouterNoise;
import java.lang.foreign.MemorySegment;

/**
 * Dropout between the two matrices of experts, in training (Switch, arXiv 2101.03961, section 2.4).
 * What is dropped depends on block, expert, the token's place and the column alone. The places
 * travel to the experts as the tokens do, by a dispatch of their own that routes in the same way.
 */
final class ExpertDropout {
    /** A place has two digits of this base, which float32 holds exactly. */
    private static final long BASE = 1 << 24;

    private final ExpertDispatch places;

    /** The places of a rank's tokens, before they travel. */
    private final Buffer own;

    private final double rate;
    private final long seed;
    private final Part part;

    /**
     * Creates the dropout of a block and slot.
     *
     * @param comm ranks that the experts are distributed over
     * @param like options of the tokens' dispatch
     * @param own two elements for each token
     * @param rate probability that an activation is dropped
     * @param seed of this block
     * @param part for the first of this rank's experts and columns
     * @param owned owner of the memory
     */
    ExpertDropout(
            Communicator comm,
            ExpertOptions like,
            Buffer own,
            double rate,
            long seed,
            Part part,
            Owned owned) {
        this.own = own;
        this.rate = rate;
        this.seed = seed;
        this.part = part;
        places =
                owned.add(
                        ExpertDispatch.create(
                                comm,
                                ExpertOptions.of(like.router(), 2)
                                        .withBackward(false)
                                        .withFixedBlocks(like.fixedBlocks())));
    }

    /** Brings the places of tokens to their experts. */
    void route(Buffer logits, int tokens, long place) {
        MemorySegment to = own.asSegment();
        for (int t = 0; t < tokens; t++) {
            to.setAtIndex(JAVA_FLOAT, 2L * t, (float) ((place + t) % BASE));
            long high = (place + t) / BASE;
            to.setAtIndex(JAVA_FLOAT, 2L * t + 1, (float) high);
        }
        places.route(logits, tokens, place);
        places.dispatch(own);
    }

    /**
     * Multiplies activations, or their gradients, by 0 or by the inverse of what is left of 1.
     *
     * @param rows those of the experts, with the layout of the tokens' dispatch
     * @param width columns of this rank
     */
    void drop(Buffer rows, int width) {
        MemorySegment x = rows.asSegment();
        MemorySegment of = places.inputs().asSegment();
        long columns = (long) width * part.tensorRanks();
        long first = (long) width * part.tensorRank();
        for (int e = 0; e < part.experts(); e++) {
            long stream = SplitMix.mix(seed + part.firstExpert() + e);
            long begin = places.firstRow(e);
            for (long r = begin; r < begin + places.rowCount(e); r++) {
                long place =
                        (long) of.getAtIndex(JAVA_FLOAT, 2 * r)
                                + BASE * (long) of.getAtIndex(JAVA_FLOAT, 2 * r + 1);
                for (int c = 0; c < width; c++) {
                    float keep = RouterNoise.keep(rate, stream, place * columns + first + c);
                    long at = r * width + c;
                    x.setAtIndex(JAVA_FLOAT, at, keep * x.getAtIndex(JAVA_FLOAT, at));
                }
            }
        }
    }
}

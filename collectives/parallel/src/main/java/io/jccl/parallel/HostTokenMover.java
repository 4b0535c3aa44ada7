package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Moves and sums rows in host memory on the calling thread; each call returns when all is done. */
final class HostTokenMover extends TokenMover {
    private final Buffer counts;

    /** Created once: a slice per step would be created again when layers alternate. */
    private final Buffer ownCounts;

    private final TokenExchange exchange;
    private final TokenRows rows;

    /** Of the step, for the rows after the tokens. */
    private @Nullable DispatchPlan plan;

    HostTokenMover(
            Communicator comm,
            ExpertOptions options,
            ExpertRouter router,
            long maxRows,
            List<AutoCloseable> owned) {
        super(comm, options, router, maxRows, 0, owned);
        counts = own(comm.device().allocate(DataType.INT32, countsOfAll()));
        ownCounts = ownCounts(counts);
        List<Buffer> blocks = new ArrayList<>(List.of(inputs, outputs));
        if (outputGradients != null && inputGradients != null) {
            blocks.add(outputGradients);
            blocks.add(inputGradients);
        }
        rows = new TokenRows(options.features(), options.type(), ownRows(1).asSegment());
        exchange = TokenExchange.of(comm, options, blocks, this::ownRows);
    }

    @Override
    Buffer counts() {
        return counts;
    }

    @Override
    void gatherCounts() {
        comm.allGather(ownCounts, counts, stream);
        stream.synchronize();
    }

    @Override
    Buffer readable(Buffer logits, int tokens) {
        return logits;
    }

    @Override
    void layOut(DispatchPlan plan) {
        this.plan = plan;
        exchange.layOut(router, plan);
    }

    @Override
    void dispatch(Buffer tokens) {
        MemorySegment from = tokens.asSegment();
        MemorySegment[] to = exchange.outgoing(TokenExchange.INPUTS);
        Assignments table = router.table();
        int n = router.tokens();
        long[] place = exchange.place;
        int[] memory = exchange.memory;
        // By token, so that rows are read sequentially and written to as many streams as there are
        // experts, which the hardware prefetchers can about follow.
        for (int t = 0; t < n; t++) {
            int end = table.tokenStart[t + 1];
            for (int k = table.tokenStart[t]; k < end; k++) {
                int i = table.byToken[k];
                rows.copy(from, t, to[memory[i]], place[i]);
            }
        }
        exchange.send(TokenExchange.INPUTS);
        zeroPadding(inputs);
    }

    @Override
    void combine(Buffer result) {
        sum(TokenExchange.OUTPUTS, true, result.asSegment());
    }

    @Override
    void dispatchBackward(Buffer tokensGradient) {
        sum(TokenExchange.INPUT_GRADIENTS, false, tokensGradient.asSegment());
    }

    @Override
    void routeBackward(Buffer logitsGradient, double balance, double z) {
        router.backward(logitsGradient, balance, z);
    }

    /** Sums each token's rows of a block over its assignments, with their weights or without. */
    private void sum(int block, boolean weighted, MemorySegment to) {
        MemorySegment[] from = exchange.incoming(block);
        long[] place = exchange.place;
        int[] memory = exchange.memory;
        Assignments table = router.table();
        int tokens = router.tokens();
        for (int t = 0; t < tokens; t++) {
            int first = table.tokenStart[t];
            int end = table.tokenStart[t + 1];
            if (first == end) {
                rows.zero(to, t, 1);
                continue;
            }
            int i = table.byToken[first];
            rows.begin(from[memory[i]], place[i], weighted ? table.weight[i] : 1, to, t);
            for (int k = first + 1; k < end; k++) {
                i = table.byToken[k];
                rows.add(from[memory[i]], place[i], weighted ? table.weight[i] : 1, to, t);
            }
            rows.end(to, t);
        }
        exchange.release();
    }

    @Override
    void combineBackward(Buffer resultGradient) {
        MemorySegment from = resultGradient.asSegment();
        MemorySegment[] results = exchange.results();
        MemorySegment[] to = exchange.outgoing(TokenExchange.OUTPUT_GRADIENTS);
        long[] place = exchange.place;
        int[] memory = exchange.memory;
        Assignments table = router.table();
        int tokens = router.tokens();
        for (int t = 0; t < tokens; t++) {
            int first = table.tokenStart[t];
            int end = table.tokenStart[t + 1];
            if (first < end) {
                rows.keep(from, t);
            }
            for (int k = first; k < end; k++) {
                int i = table.byToken[k];
                table.weightGradient[i] = rows.dot(results[memory[i]], place[i]);
                rows.scale(from, t, table.weight[i], to[memory[i]], place[i]);
            }
        }
        exchange.send(TokenExchange.OUTPUT_GRADIENTS);
        if (outputGradients != null) {
            zeroPadding(outputGradients);
        }
    }

    private void zeroPadding(Buffer block) {
        if (options.fixedBlocks() && plan != null) {
            MemorySegment s = block.asSegment();
            int first = comm.rank() * plan.local;
            long blockRows = maxRows / plan.local;
            for (int e = first; e < first + plan.local; e++) {
                rows.zero(s, plan.first(e) + plan.rows(e), blockRows - plan.rows(e));
            }
        }
    }
}

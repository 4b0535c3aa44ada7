package io.jccl.parallel;

import java.lang.foreign.MemorySegment;

/** Moves and sums the rows of a rank's tokens by the router's assignments. */
final class TokenMover {
    private final ExpertRouter router;
    private final TokenExchange exchange;
    private final TokenRows rows;

    TokenMover(ExpertRouter router, TokenExchange exchange, TokenRows rows) {
        this.router = router;
        this.exchange = exchange;
        this.rows = rows;
    }

    /** Sends tokens to the inputs of their experts. */
    void dispatch(MemorySegment from) {
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
    }

    /** Sums each token's rows of a block over its assignments, with their weights or without. */
    void sum(int block, boolean weighted, MemorySegment to) {
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

    /**
     * Sends weighted gradients of the result to the experts, and sets the gradients of the weights.
     */
    void combineBackward(MemorySegment from) {
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
    }
}

package io.jccl.topology.simulate;

import io.jccl.topology.Operation;

/** Fills a schedule with what an operation moves over the channels of a plan. */
final class ScheduleBuilder {
    private final Schedule s;
    private final Operation op;
    private final int root;
    private final int chunks;
    private final int n;

    /**
     * Starts with nothing loaded.
     *
     * @param chunks number of a block's chunks, on every channel
     */
    ScheduleBuilder(Schedule s, Operation op, int root, int chunks) {
        this.s = s;
        this.op = op;
        this.root = root;
        this.chunks = chunks;
        n = s.ranks;
    }

    /** Whether data is added up on the way. */
    static boolean reduces(Operation op) {
        return switch (op) {
            case ALL_REDUCE, REDUCE_SCATTER, REDUCE -> true;
            default -> false;
        };
    }

    /** Whether the result goes to every rank. */
    static boolean spreads(Operation op) {
        return switch (op) {
            case ALL_REDUCE, ALL_GATHER, BROADCAST -> true;
            default -> false;
        };
    }

    /** How many blocks the buffer has: one a rank, or one. */
    static boolean blocks(Operation op) {
        return op != Operation.BROADCAST && op != Operation.REDUCE;
    }

    /** How large the blocks are of a channel that carries so much. */
    static double block(Operation op, int ranks, double bytes) {
        return switch (op) {
            case BROADCAST, REDUCE, SEND_RECV -> bytes;
            default -> bytes / ranks;
        };
    }

    /** How many chunks of at most a size a block is cut into. */
    static int chunks(double block, long chunkBytes) {
        double chunks = Math.ceil(block / chunkBytes);
        if (chunks > Schedule.MAX_TRANSFERS) {
            throw new IllegalArgumentException(
                    "chunks of " + chunkBytes + " bytes are too many: take larger ones");
        }
        return Math.max(1, (int) chunks);
    }

    /** Chunks that are to be there in the end, and nothing that moves them. */
    void expect(int channel) {
        for (int b = 0; b < n; b++) {
            for (int k = 0; k < chunks; k++) {
                switch (op) {
                    case ALL_REDUCE -> s.unit(channel, -1, -1, k);
                    case REDUCE_SCATTER -> s.unit(channel, -1, b, k);
                    case ALL_GATHER -> s.unit(channel, b, -1, k);
                    case SEND_RECV -> s.unit(channel, b, (b + 1) % n, k);
                    case GATHER -> s.unit(channel, b, root, k);
                    case SCATTER -> s.unit(channel, root, b, k);
                    case ALL_TO_ALL -> {
                        for (int d = 0; d < n; d++) {
                            s.unit(channel, b, d, k);
                        }
                    }
                    case BROADCAST -> {
                        if (b == root) {
                            s.unit(channel, root, -1, k);
                        }
                    }
                    case REDUCE -> {
                        if (b == root) {
                            s.unit(channel, -1, root, k);
                        }
                    }
                }
            }
        }
    }

    void load(int channel, Schedule.Part part, double bytes) {
        switch (part) {
            case Schedule.Ring ring -> ring(channel, ring, bytes);
            case Schedule.Tree tree -> tree(channel, tree, bytes);
            case Schedule.Exchange exchange -> exchange(channel, exchange, bytes);
        }
    }

    private void ring(int channel, Schedule.Ring ring, double bytes) {
        if (!reduces(op) && !spreads(op)) {
            throw new IllegalArgumentException(op.command() + " can't go round rings");
        }
        double block = block(op, n, bytes);
        int m = ring.ranks().length;
        int[] lanes = new int[m];
        for (int i = 0; i < m; i++) {
            lanes[i] = s.lane(ring.paths()[i], ring.gbps());
        }
        int first = s.units;
        expect(channel);
        for (int u = first; u < s.units; u++) {
            int owner = blocks(op) ? (u - first) / chunks : root;
            int position = 0;
            while (position < m && ring.ranks()[position] != owner) {
                position++;
            }
            if (position < m) {
                s.ring(ring, lanes, u, position, reduces(op), spreads(op), block / chunks);
            }
        }
    }

    private void tree(int channel, Schedule.Tree tree, double bytes) {
        if (op != Operation.ALL_REDUCE && op != Operation.BROADCAST && op != Operation.REDUCE) {
            throw new IllegalArgumentException(op.command() + " can't go over trees");
        }
        int hops = tree.from().length;
        int[] up = new int[hops];
        int[] down = new int[hops];
        for (int h = 0; h < hops; h++) {
            up[h] = reduces(op) ? s.lane(tree.up()[h], tree.gbps()) : -1;
            down[h] = spreads(op) ? s.lane(tree.down()[h], tree.gbps()) : -1;
        }
        for (int k = 0; k < chunks; k++) {
            int u = s.unit(channel, reduces(op) ? -1 : root, spreads(op) ? -1 : root, k);
            s.tree(tree, up, down, u, reduces(op), spreads(op), bytes / chunks);
        }
    }

    private void exchange(int channel, Schedule.Exchange exchange, double bytes) {
        if (reduces(op) || op == Operation.BROADCAST) {
            throw new IllegalArgumentException(op.command() + " can't be a direct exchange");
        }
        double block = block(op, n, bytes);
        int first = s.units;
        expect(channel);
        for (int h = 0; h < exchange.from().length; h++) {
            int from = exchange.from()[h];
            int to = exchange.to()[h];
            int lane = s.lane(exchange.paths()[h], exchange.gbps());
            for (int k = 0; k < chunks; k++) {
                int u =
                        first
                                + switch (op) {
                                    case ALL_TO_ALL -> (from * chunks + k) * n + to;
                                    case SCATTER -> to * chunks + k;
                                    default -> from * chunks + k;
                                };
                s.transfer(lane, u, from, to, false, block / chunks);
            }
        }
    }
}

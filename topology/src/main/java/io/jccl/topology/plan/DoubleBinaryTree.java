package io.jccl.topology.plan;

/**
 * Two binary trees over the same ranks. An inner rank of one is a leaf of the other. If each
 * carries half of the data, all ranks send and receive about the same amount, at a depth of log2 n.
 *
 * <p>The first tree is the search tree in which rank r is at height (number of trailing zero bits
 * of r + 1), so the even ranks are leaves. The second is its mirror image if n is even, and the
 * first rotated by one rank if n is odd. Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35 (2009).
 *
 * <p><b>Threads:</b> immutable.
 */
public final class DoubleBinaryTree {
    private DoubleBinaryTree() {}

    /**
     * The root of a tree.
     *
     * @param tree 0 or 1
     * @param n number of ranks, at least 1
     * @return its rank
     */
    public static int root(int tree, int n) {
        check(tree, 0, n);
        return rank(tree, Integer.highestOneBit(n) - 1, n);
    }

    /**
     * The parent of a rank.
     *
     * @param tree 0 or 1
     * @param rank 0 to n-1
     * @param n number of ranks, at least 1
     * @return the parent's rank; -1 for the root
     */
    public static int parent(int tree, int rank, int n) {
        check(tree, rank, n);
        long at = 1L + place(tree, rank, n);
        if (at == Integer.highestOneBit(n)) {
            return -1;
        }
        do {
            long bit = Long.lowestOneBit(at);
            at = (at & (bit << 1)) != 0 ? at - bit : at + bit;
        } while (at > n); // a place that the tree would have if it were complete
        return rank(tree, (int) at - 1, n);
    }

    /** The place of a rank in the first tree's shape. */
    private static int place(int tree, int rank, int n) {
        if (tree == 0) {
            return rank;
        }
        return n % 2 == 0 ? n - 1 - rank : (rank + n - 1) % n;
    }

    private static int rank(int tree, int place, int n) {
        if (tree == 0) {
            return place;
        }
        return n % 2 == 0 ? n - 1 - place : (place + 1) % n;
    }

    private static void check(int tree, int rank, int n) {
        if (tree != 0 && tree != 1) {
            throw new IllegalArgumentException("tree is " + tree + ", expected 0 or 1");
        }
        if (n < 1 || rank < 0 || rank >= n) {
            throw new IllegalArgumentException(
                    "rank is " + rank + ", expected 0 to " + (n - 1) + " of " + n + " ranks");
        }
    }
}

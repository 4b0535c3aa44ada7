package io.jccl.topology.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class DoubleBinaryTreeTest {
    @Test
    void bothSpanAreShallowAndNoRankIsInsideBoth() {
        bothAreGood(2, 260);
    }

    @Tag("exhaustive")
    @Test
    void thoseOfMoreRanksToo() {
        bothAreGood(261, 1025);
    }

    private static void bothAreGood(int first, int last) {
        for (int n = first; n <= last; n++) {
            boolean[] inside = new boolean[n];
            for (int tree = 0; tree < 2; tree++) {
                int[] children = new int[n];
                int roots = 0;
                for (int rank = 0; rank < n; rank++) {
                    int parent = DoubleBinaryTree.parent(tree, rank, n);
                    if (parent < 0) {
                        roots++;
                        assertEquals(rank, DoubleBinaryTree.root(tree, n));
                        continue;
                    }
                    children[parent]++;
                    int depth = 0;
                    for (int at = rank; at >= 0; at = DoubleBinaryTree.parent(tree, at, n)) {
                        depth++;
                    }
                    int most = 33 - Integer.numberOfLeadingZeros(n);
                    assertTrue(depth <= most, "depth " + depth + " of " + rank + " of " + n);
                }
                assertEquals(1, roots, "n " + n);
                for (int rank = 0; rank < n; rank++) {
                    assertTrue(children[rank] <= 2, "n " + n);
                    if (children[rank] > 0) {
                        assertTrue(!inside[rank], "rank " + rank + " of " + n + " is inside both");
                        inside[rank] = true;
                    }
                }
            }
        }
    }

    @Test
    void badRanksAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> DoubleBinaryTree.parent(2, 0, 4));
        assertThrows(IllegalArgumentException.class, () -> DoubleBinaryTree.parent(0, 4, 4));
        assertThrows(IllegalArgumentException.class, () -> DoubleBinaryTree.root(0, 0));
    }
}

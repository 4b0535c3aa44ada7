package io.jccl.parallel;

import java.util.Arrays;

/**
 * The assignments of one rank's tokens to experts in one step, numbered by expert and then by slot,
 * with an index by token. All memory is allocated once.
 */
final class Assignments {
    /** Number of assignments of each expert; the choice fills it. */
    final int[] count;

    /** First assignment of each expert, then the end of the last one. */
    final int[] start;

    final int[] token;
    final int[] expert;
    final float[] weight;
    final float[] weightGradient;

    /** Assignments ordered by token: those of token t are at [tokenStart[t], tokenStart[t + 1]). */
    final int[] byToken;

    final int[] tokenStart;

    Assignments(RouterOptions options) {
        int most = options.maxAssignments();
        count = new int[options.experts()];
        start = new int[options.experts() + 1];
        token = new int[most];
        expert = new int[most];
        weight = new float[most];
        weightGradient = new float[most];
        byToken = new int[most];
        tokenStart = new int[options.maxTokens() + 1];
    }

    void clear() {
        Arrays.fill(count, 0);
        Arrays.fill(start, 0);
        tokenStart[0] = 0;
    }

    int size() {
        return start[count.length];
    }

    /** Numbers the assignments, once the counts are known. */
    void setStarts() {
        for (int e = 0; e < count.length; e++) {
            start[e + 1] = start[e] + count[e];
        }
    }

    void set(int i, int t, int e, float w) {
        token[i] = t;
        expert[i] = e;
        weight[i] = w;
        weightGradient[i] = 0;
    }

    /** Builds the index by token, once all assignments are set. */
    void indexByToken(int tokens) {
        Arrays.fill(tokenStart, 0, tokens + 1, 0);
        int n = size();
        for (int i = 0; i < n; i++) {
            tokenStart[token[i] + 1]++;
        }
        for (int t = 0; t < tokens; t++) {
            tokenStart[t + 1] += tokenStart[t];
        }
        // Filled from the back, which moves each start back to its final value.
        for (int i = n - 1; i >= 0; i--) {
            byToken[--tokenStart[token[i] + 1]] = i;
        }
        System.arraycopy(tokenStart, 1, tokenStart, 0, tokens);
        tokenStart[tokens] = n;
    }
}

package io.jccl.topology.read;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Disjoint sets of the numbers from 0 to size - 1. Not thread-safe. */
final class DisjointSets {
    private final int[] parent;

    DisjointSets(int size) {
        parent = new int[size];
        for (int i = 0; i < size; i++) {
            parent[i] = i;
        }
    }

    int find(int x) {
        int at = x;
        while (parent[at] != at) {
            parent[at] = parent[parent[at]];
            at = parent[at];
        }
        return at;
    }

    void unite(int x, int y) {
        int a = find(x);
        int c = find(y);
        if (a != c) {
            parent[Math.max(a, c)] = Math.min(a, c);
        }
    }

    Map<Integer, List<Integer>> groups(int count) {
        List<Integer> all = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            all.add(i);
        }
        return groups(all);
    }

    Map<Integer, List<Integer>> groups(List<Integer> of) {
        Map<Integer, List<Integer>> groups = new LinkedHashMap<>();
        for (int x : of) {
            groups.computeIfAbsent(find(x), k -> new ArrayList<>()).add(x);
        }
        return groups;
    }
}

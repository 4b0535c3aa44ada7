package io.jccl.topology.nccl;

import java.util.BitSet;
import org.jspecify.annotations.Nullable;

/** Linux's two ways to write a set of CPUs: {@code 0-3,8} and {@code 0000010f}. */
final class CpuMask {
    private static final int GROUP = 32;

    /** Longest mask that NCCL reads. */
    private static final int MAX_LENGTH = 250;

    private CpuMask() {}

    /** The list of a mask; null if it is not a mask. */
    static @Nullable String toList(String mask) {
        BitSet set = new BitSet();
        String[] groups = mask.strip().split(",", -1);
        for (int g = 0; g < groups.length; g++) {
            String group = groups[groups.length - 1 - g].strip();
            if (!group.matches("[0-9a-fA-F]{1,8}")) {
                return null;
            }
            long bits = Long.parseLong(group, 16);
            for (int i = 0; i < GROUP; i++) {
                if ((bits >> i & 1) == 1) {
                    set.set(GROUP * g + i);
                }
            }
        }
        StringBuilder list = new StringBuilder();
        for (int first = set.nextSetBit(0); first >= 0; ) {
            int end = set.nextClearBit(first);
            list.append(list.isEmpty() ? "" : ",").append(first);
            if (end - 1 > first) {
                list.append('-').append(end - 1);
            }
            first = set.nextSetBit(end);
        }
        return list.toString();
    }

    /** Adds the CPUs of a list; false if it is not a list. */
    static boolean addList(String list, BitSet to) {
        for (String part : list.split(",", -1)) {
            String[] ends = part.strip().split("-", 2);
            if (!ends[0].matches("[0-9]{1,5}") || !ends[ends.length - 1].matches("[0-9]{1,5}")) {
                return false;
            }
            int first = Integer.parseInt(ends[0]);
            int last = Integer.parseInt(ends[ends.length - 1]);
            if (last < first) {
                return false;
            }
            to.set(first, last + 1);
        }
        return true;
    }

    /** The mask of a set; empty if the set is, or has more CPUs than NCCL reads. */
    static String toMask(BitSet set) {
        int groups = (set.length() + GROUP - 1) / GROUP;
        StringBuilder mask = new StringBuilder();
        for (int g = groups - 1; g >= 0; g--) {
            long bits = 0;
            for (int i = 0; i < GROUP; i++) {
                bits |= set.get(GROUP * g + i) ? 1L << i : 0;
            }
            mask.append(mask.isEmpty() ? "" : ",").append(String.format("%08x", bits));
        }
        return mask.length() > MAX_LENGTH ? "" : mask.toString();
    }
}

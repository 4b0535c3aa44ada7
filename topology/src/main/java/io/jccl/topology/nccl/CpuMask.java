package io.jccl.topology.nccl;

import java.util.BitSet;
import org.jspecify.annotations.Nullable;

/** Sets of CPUs as masks of hexadecimal digits, such as {@code 0000010f}. */
final class CpuMask {
    private static final int GROUP = 32;

    /** Longest mask that NCCL reads. */
    private static final int MAX_LENGTH = 250;

    private CpuMask() {}

    /** The CPUs of a mask; null if it is not a mask. */
    static @Nullable BitSet parse(String mask) {
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
        return set;
    }

    /** The mask of a set; empty if the set is, or has more CPUs than NCCL reads. */
    static String text(BitSet set) {
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

package io.jccl.cli.doctor;

import java.util.ArrayList;
import java.util.List;

/** The kernel's notation for sets of CPUs, such as {@code 0-3,8}. */
final class CpuList {
    private static final int MOST = 1 << 16;

    private CpuList() {}

    /**
     * Parses a list.
     *
     * @throws IllegalArgumentException if the text is not a list of CPUs
     */
    static List<Integer> parse(String text) {
        List<Integer> cpus = new ArrayList<>();
        if (text.isEmpty()) {
            return cpus;
        }
        for (String part : text.split(",", -1)) {
            String[] ends = part.split("-", 2);
            int first = Integer.parseUnsignedInt(ends[0]);
            int last = ends.length == 1 ? first : Integer.parseUnsignedInt(ends[1]);
            if (last < first || last >= MOST) {
                throw new IllegalArgumentException("'" + part + "' is not a range of CPUs");
            }
            for (int cpu = first; cpu <= last; cpu++) {
                cpus.add(cpu);
            }
        }
        return cpus;
    }
}

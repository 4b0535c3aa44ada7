package io.jccl.topology;

import java.util.Objects;

/**
 * A cell of a matrix printed by {@code nvidia-smi topo}.
 *
 * @param text as printed: {@code NV12}, {@code PIX}, {@code SOC}, {@code OK}
 * @param kind what it means
 * @param count number of NVLinks if {@code kind} is {@link Kind#NV}, else 0
 */
public record PathCode(String text, Kind kind, int count) {
    /** What a code means; paths are ordered from near to far. */
    public enum Kind {
        /** The device itself. */
        SELF,
        /** A bond of NVLinks. */
        NV,
        /** At most one PCIe bridge. */
        PIX,
        /** Several PCIe bridges, no host bridge. */
        PXB,
        /** A PCIe host bridge. */
        PHB,
        /** Host bridges of one NUMA node. */
        NODE,
        /** Between NUMA nodes; old drivers print {@code SOC}. */
        SYS,
        /** A state of {@code -p2p}, not a path. */
        P2P,
        /** An unknown code, kept as printed. */
        UNKNOWN
    }

    /** The diagonal. */
    public static final PathCode SELF = new PathCode("X", Kind.SELF, 0);

    /** Highest number of NVLinks accepted in a code: a GPU of the announced generation has 36. */
    private static final int MAX_LINKS = 999;

    /** Checks that no argument is null. */
    public PathCode {
        Objects.requireNonNull(text, "text");
        Objects.requireNonNull(kind, "kind");
    }

    /**
     * Reads a cell.
     *
     * @param text the cell without surrounding blanks
     * @return its code, of kind {@link Kind#UNKNOWN} if it is not a known one
     */
    public static PathCode of(String text) {
        return switch (text) {
            case "X" -> SELF;
            case "PIX" -> new PathCode(text, Kind.PIX, 0);
            case "PXB" -> new PathCode(text, Kind.PXB, 0);
            case "PHB" -> new PathCode(text, Kind.PHB, 0);
            case "NODE" -> new PathCode(text, Kind.NODE, 0);
            case "SYS", "SOC" -> new PathCode(text, Kind.SYS, 0);
            case "OK", "CNS", "GNS", "TNS", "NS", "DR", "U" -> new PathCode(text, Kind.P2P, 0);
            default -> {
                int links = links(text);
                yield links > 0
                        ? new PathCode(text, Kind.NV, links)
                        : new PathCode(text, Kind.UNKNOWN, 0);
            }
        };
    }

    /** The number after {@code NV}, or 0. */
    private static int links(String text) {
        if (!text.startsWith("NV") || text.length() < 3 || text.length() > 5) {
            return 0;
        }
        int links = 0;
        for (int i = 2; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c < '0' || c > '9' || (i == 2 && c == '0')) {
                return 0;
            }
            links = 10 * links + c - '0';
        }
        return Math.min(links, MAX_LINKS);
    }

    @Override
    public String toString() {
        return text;
    }
}

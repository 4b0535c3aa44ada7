package io.jccl.topology.read;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Random machines, printed as nvidia-smi prints them and as people paste them. */
final class DumpPrinter {
    /** How separators look. */
    enum Style {
        TABS,
        SPACES,
        MARKDOWN
    }

    /** What a terminal did to long lines. */
    enum Wrap {
        NONE,
        /** The tab at the end of a terminal line is lost. */
        FUSED,
        /** A line break stands at the end of a terminal line. */
        BROKEN
    }

    final Random random;
    final int gpus;
    final int nics;
    final String[][] codes;
    final String[] names;
    final String[] devices;
    final boolean legend;
    final String[] headings;

    /** CPU, NUMA and GPU NUMA lists of each GPU. */
    final String[][] lists;

    DumpPrinter(Random random, int maxGpus, int maxNics) {
        this.random = random;
        gpus = 1 + random.nextInt(maxGpus);
        nics = random.nextInt(maxNics + 1);
        legend = random.nextBoolean();
        int n = gpus + nics;
        names = new String[n];
        devices = new String[n];
        for (int i = 0; i < n; i++) {
            devices[i] = (random.nextInt(8) == 0 ? "ibp" + (20 + i) + "s0" : "mlx5_" + (i - gpus));
            names[i] = i < gpus ? "GPU" + i : legend ? "NIC" + (i - gpus) : devices[i];
        }
        codes = codes(n);
        headings =
                Arrays.copyOf(
                        new String[] {"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"},
                        random.nextInt(4));
        lists = new String[gpus][];
        int kind = random.nextInt(3);
        for (int i = 0; i < gpus; i++) {
            int numa = i * 2 / gpus;
            String cpu =
                    numa * 24
                            + "-"
                            + (numa * 24 + 23)
                            + ","
                            + (48 + numa * 24)
                            + "-"
                            + (71 + numa * 24);
            lists[i] =
                    new String[] {
                        kind == 1 && random.nextBoolean() ? "" : cpu,
                        kind == 2 && random.nextBoolean()
                                ? "N/A"
                                : kind == 1 && i % 3 == 0 ? "0-1" : String.valueOf(numa),
                        kind == 2 ? String.valueOf(4 + 8 * i) : "N/A"
                    };
        }
    }

    private String[][] codes(int n) {
        int[] numa = new int[n];
        int[] bridge = new int[n];
        int[] root = new int[n];
        int[] leaf = new int[n];
        for (int i = 0; i < n; i++) {
            numa[i] = random.nextInt(2);
            bridge[i] = random.nextInt(2);
            root[i] = random.nextInt(2);
            leaf[i] = random.nextInt(2);
        }
        int fabric = random.nextInt(4);
        String all = "NV" + new int[] {1, 2, 4, 6, 8, 12, 18}[random.nextInt(7)];
        String far = random.nextInt(6) == 0 ? "SOC" : "SYS";
        String[][] c = new String[n][n];
        for (int i = 0; i < n; i++) {
            c[i][i] = "X";
            for (int j = 0; j < i; j++) {
                String code;
                if (numa[i] != numa[j]) {
                    code = far;
                } else if (bridge[i] != bridge[j]) {
                    code = "NODE";
                } else if (root[i] != root[j]) {
                    code = "PHB";
                } else {
                    code = leaf[i] != leaf[j] ? "PXB" : "PIX";
                }
                if (i < gpus && fabric == 1) {
                    code = all;
                } else if (i < gpus && fabric == 2 && random.nextInt(3) == 0) {
                    code = "NV" + (1 + random.nextInt(3));
                }
                c[i][j] = code;
                c[j][i] = code;
            }
        }
        return c;
    }

    String print(Style style, Wrap wrap) {
        List<String> lines = new ArrayList<>();
        boolean trailing = random.nextBoolean();
        int lead = random.nextInt(4);
        boolean ansi = style != Style.MARKDOWN && random.nextInt(3) == 0;
        String esc = new String[] {"\u001b[", "^[[", "["}[random.nextInt(3)];
        List<String> head = new ArrayList<>(List.of(names));
        head.addAll(List.of(headings));
        String top =
                switch (style) {
                    case TABS ->
                            (lead == 0 ? "" : lead == 1 ? "        " : lead == 2 ? "\t\t" : "\t")
                                    + (ansi ? esc + "4m" : "")
                                    + String.join("\t", head);
                    case SPACES -> {
                        StringBuilder b = new StringBuilder("        " + (ansi ? esc + "4m" : ""));
                        for (int i = 0; i < head.size(); i++) {
                            b.append(pad(head.get(i), i < names.length ? 8 : 16));
                        }
                        yield b.toString();
                    }
                    case MARKDOWN -> "|  | " + String.join(" | ", head) + " |";
                };
        lines.add(top + (ansi ? esc + "0m" : ""));
        if (style == Style.MARKDOWN) {
            lines.add("|---" + "|:--".repeat(head.size()) + "|");
        }
        for (int i = 0; i < names.length; i++) {
            List<String> cells = new ArrayList<>();
            for (int j = 0; j < names.length; j++) {
                cells.add(i == j && style != Style.MARKDOWN ? " X " : codes[i][j]);
            }
            String row;
            if (style == Style.TABS) {
                row = names[i] + "\t" + String.join("\t", cells);
                for (int k = 0; k < headings.length && (i < gpus || trailing); k++) {
                    String value = i < gpus ? lists[i][k] : "";
                    row += (k == 2 || value.equals("N/A") ? "\t\t" : "\t") + value;
                }
                if (i >= gpus && random.nextInt(4) == 0) {
                    row = row.stripTrailing();
                }
            } else if (style == Style.SPACES) {
                StringBuilder b = new StringBuilder(pad(names[i], 8));
                cells.forEach(cell -> b.append(pad(cell, 8)));
                for (int k = 0; k < headings.length && i < gpus; k++) {
                    b.append(pad(lists[i][k], 16));
                }
                row = b.toString().stripTrailing();
            } else {
                for (int k = 0; k < headings.length; k++) {
                    cells.add(i < gpus ? lists[i][k] : "");
                }
                row = "| **" + names[i] + "** | " + String.join(" | ", cells) + " |";
            }
            lines.add(row);
            if (random.nextInt(12) == 0 && i + 1 < names.length) {
                lines.add("");
            }
        }
        if (wrap != Wrap.NONE) {
            int width = 40 + random.nextInt(60);
            lines.replaceAll(line -> wrap(line, width, wrap));
        }
        String indent = style == Style.TABS && random.nextInt(5) == 0 ? "    " : "";
        StringBuilder out = new StringBuilder();
        if (random.nextInt(3) == 0) {
            out.append("user@node7:~$ nvidia-smi topo -m\n");
        }
        for (String line : lines) {
            out.append(line.isEmpty() ? "" : indent).append(line).append('\n');
        }
        if (random.nextBoolean()) {
            out.append("\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n");
        }
        if (legend && nics > 0) {
            out.append("\nNIC Legend:\n\n");
            for (int i = gpus; i < names.length; i++) {
                out.append("  ").append(names[i]).append(": ").append(devices[i]).append('\n');
            }
        }
        if (random.nextInt(3) == 0) {
            out.append("user@node7:~$ exit\n");
        }
        return random.nextInt(3) == 0 ? out.toString().replace("\n", "\r\n") : out.toString();
    }

    /** Terminals count a tab up to the next multiple of 8. */
    private static String wrap(String line, int width, Wrap wrap) {
        StringBuilder out = new StringBuilder();
        int column = 0;
        for (int i = 0; i < line.length(); i++) {
            char c = line.charAt(i);
            int next = c == '\t' ? (column / 8 + 1) * 8 : column + 1;
            if (next > width && i > 12) {
                column = 0;
                if (wrap == Wrap.BROKEN) {
                    out.append('\n');
                } else if (c == '\t') {
                    continue;
                }
            }
            out.append(c);
            column = c == '\t' ? Math.min(width, (column / 8 + 1) * 8) : column + 1;
        }
        return out.toString();
    }

    private static String pad(String text, int width) {
        return text.length() >= width ? text + " " : text + " ".repeat(width - text.length());
    }
}

package io.jccl.topology.draw;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Node;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Positions in a picture. GPUs and NICs form a row, each next to those that are near it; below them
 * are the PCIe switches, host bridges and NUMA nodes as bars, each as wide as its subtree, so that
 * every link of that tree is a vertical line. NVLinks leave the GPUs on the other side: into a bar
 * for the NVSwitches, or as arches from GPU to GPU. Many GPUs on NVSwitches form two rows, with the
 * bar between them and the lower half as the mirror image of the upper one.
 */
final class Layout {
    /** More GPUs and NICs than this form two rows. */
    private static final int ONE_ROW = 26;

    private static final double MARGIN = 24;
    private static final double LEAF_HEIGHT = 40;
    private static final double BAR = 24;
    private static final double LEVEL = 58;
    private static final double STEM = 54;

    /** Longer names are cut. */
    static final int NAME = 24;

    /** Width of a character of a switch's name. */
    static final double CHARACTER = 6.6;

    /** Width of a character of a GPU's or NIC's name, as small as it may become. */
    private static final double SMALL = 5.6;

    /** A rectangle; {@code up} if its NVLinks leave at the top. */
    record Box(double x, double y, double width, double height, boolean up) {
        double middle() {
            return x + width / 2;
        }

        double centre() {
            return y + height / 2;
        }

        double bottom() {
            return y + height;
        }
    }

    /**
     * A line from one end of a link to the other: straight if {@code rise} is 0, else an arch that
     * rises so far above (below, if negative) its ends.
     */
    record Line(double x1, double y1, double x2, double y2, double rise) {
        Line reversed() {
            return new Line(x2, y2, x1, y1, rise);
        }
    }

    private final Topology topology;
    private final int[] parent;
    private final List<List<Integer>> children = new ArrayList<>();
    private final List<Integer> roots = new ArrayList<>();
    private final int[] level;
    private final Box[] boxes;
    private final Line[] lines;
    private final double leafWidth;
    private final double gap;
    private final boolean twoRows;
    private final int lanes;
    private double width;
    private double height;

    /**
     * Lays out.
     *
     * @param topology what
     * @param lanes how many channels will be drawn over it
     */
    Layout(Topology topology, int lanes) {
        this.topology = topology;
        this.lanes = lanes;
        int n = topology.nodes().size();
        int leaves = topology.gpus().size() + topology.nics().size();
        boolean switched =
                topology.switches().stream().anyMatch(h -> h.kind() == Switch.Kind.NVSWITCH);
        boolean many = leaves > 14;
        int longest = 0;
        for (int i = 0; i < leaves; i++) {
            longest = Math.max(longest, Math.min(NAME, topology.nodes().get(i).name().length()));
        }
        leafWidth = Math.max(many ? 52 : 76, longest * SMALL + 6);
        gap = many ? 8 : 16;
        parent = new int[n];
        level = new int[n];
        boxes = new Box[n];
        lines = new Line[topology.links().size()];
        findTree();
        twoRows = switched && leaves > ONE_ROW && roots.size() > 1;
        findLevels();
        place();
        connect();
    }

    /** The box of a node. */
    Box box(int node) {
        return boxes[node];
    }

    /** The line of a link, from {@link Link#a()} to {@link Link#b()}. */
    Line line(int link) {
        return lines[link];
    }

    double width() {
        return width;
    }

    double height() {
        return height;
    }

    /** Breadth first from the NUMA nodes, then from what they do not reach. */
    private void findTree() {
        Arrays.fill(parent, -2);
        for (int i = 0; i < parent.length; i++) {
            children.add(new ArrayList<>());
        }
        for (Switch.Kind kind :
                List.of(Switch.Kind.NUMA, Switch.Kind.HOST_BRIDGE, Switch.Kind.PCIE_SWITCH)) {
            List<Integer> queue = new ArrayList<>();
            for (Switch sw : topology.switches()) {
                if (sw.kind() == kind && parent[sw.id()] == -2) {
                    parent[sw.id()] = -1;
                    roots.add(sw.id());
                    queue.add(sw.id());
                }
            }
            for (int i = 0; i < queue.size(); i++) {
                hang(queue.get(i), queue);
            }
        }
        // A GPU with both links is drawn below its PCIe switch, next to its NIC, rather than below
        // its CPU.
        for (Link link : topology.links()) {
            int leaf = Math.min(link.a(), link.b());
            if (link.kind() == LinkKind.C2C && parent[leaf] == -2) {
                parent[leaf] = link.opposite(leaf);
                children.get(parent[leaf]).add(leaf);
            }
        }
        for (int leaf = 0; leaf < topology.gpus().size() + topology.nics().size(); leaf++) {
            if (parent[leaf] == -2) {
                parent[leaf] = -1;
                roots.add(leaf);
            }
        }
        for (List<Integer> c : children) {
            c.sort((x, y) -> Integer.compare(firstLeaf(x), firstLeaf(y)));
        }
        roots.sort((x, y) -> Integer.compare(firstLeaf(x), firstLeaf(y)));
    }

    private void hang(int at, List<Integer> queue) {
        if (!(topology.nodes().get(at) instanceof Switch)) {
            return;
        }
        for (Link link : topology.links(at)) {
            int next = link.opposite(at);
            boolean tree = link.kind() == LinkKind.PCIE || link.kind() == LinkKind.HOST_BRIDGE;
            if (tree && parent[next] == -2 && !aside(topology.nodes().get(next))) {
                parent[next] = at;
                children.get(at).add(next);
                queue.add(next);
            }
        }
    }

    /** Whether it is drawn outside the tree. */
    private static boolean aside(Node node) {
        return node instanceof Switch sw
                && (sw.kind() == Switch.Kind.NVSWITCH || sw.kind() == Switch.Kind.NETWORK);
    }

    /**
     * Orders subtrees: by their first GPU, or else their first NIC; switches that lead nowhere
     * last.
     */
    private int firstLeaf(int node) {
        int first = topology.nodes().get(node) instanceof Switch ? Integer.MAX_VALUE : node;
        for (int child : children.get(node)) {
            first = Math.min(first, firstLeaf(child));
        }
        return first;
    }

    /** Distance from the row of GPUs; equal for all host bridges and for all NUMA nodes. */
    private void findLevels() {
        int bridges = 1;
        for (int root : roots) {
            rise(root);
        }
        for (Switch sw : topology.switches()) {
            if (sw.kind() == Switch.Kind.HOST_BRIDGE) {
                bridges = Math.max(bridges, level[sw.id()]);
            }
        }
        int top = bridges;
        for (Switch sw : topology.switches()) {
            if (sw.kind() == Switch.Kind.HOST_BRIDGE) {
                level[sw.id()] = bridges;
            } else if (!aside(sw)) {
                top = Math.max(top, level[sw.id()]);
            }
        }
        boolean overBridges =
                topology.switches().stream().anyMatch(h -> h.kind() == Switch.Kind.HOST_BRIDGE);
        for (Switch sw : topology.switches()) {
            if (sw.kind() == Switch.Kind.NUMA) {
                level[sw.id()] = Math.max(level[sw.id()], overBridges ? bridges + 1 : top);
            }
        }
    }

    private int rise(int node) {
        int most = topology.nodes().get(node) instanceof Switch ? 1 : 0;
        for (int child : children.get(node)) {
            most = Math.max(most, rise(child) + 1);
        }
        level[node] = most;
        return most;
    }

    private int leavesBelow(int node) {
        if (!(topology.nodes().get(node) instanceof Switch)) {
            return 1;
        }
        int sum = 0;
        for (int child : children.get(node)) {
            sum += leavesBelow(child);
        }
        return Math.max(1, sum);
    }

    private void place() {
        int total = 0;
        for (int root : roots) {
            total += leavesBelow(root);
        }
        // The upper row gets the first half.
        List<Integer> upper = new ArrayList<>();
        List<Integer> lower = new ArrayList<>();
        int placed = 0;
        for (int root : roots) {
            boolean first = !twoRows || placed + leavesBelow(root) / 2 < (total + 1) / 2;
            (first ? upper : lower).add(root);
            placed += leavesBelow(root);
        }
        int levels = 0;
        for (int l : level) {
            levels = Math.max(levels, l);
        }
        boolean switched =
                topology.switches().stream().anyMatch(h -> h.kind() == Switch.Kind.NVSWITCH);
        double treeHeight = levels * LEVEL;
        double widest = 0;
        double upperLeaves;
        double barHeight = 30 + Math.min(lanes, 48) * 3.0;
        double barTop;
        if (twoRows) {
            upperLeaves = MARGIN + treeHeight;
            barTop = upperLeaves + LEAF_HEIGHT + STEM;
            widest = Math.max(widest, row(upper, upperLeaves, false));
            double lowerLeaves = barTop + barHeight + STEM;
            widest = Math.max(widest, row(lower, lowerLeaves, true));
            height = lowerLeaves + LEAF_HEIGHT + treeHeight + MARGIN;
        } else {
            barTop = MARGIN;
            // The leaves are placed before the heights of the arches over them are known.
            row(upper, 0, true);
            double above = switched ? barHeight + STEM : highestArch();
            upperLeaves = MARGIN + above;
            widest = row(upper, upperLeaves, true);
            height = upperLeaves + LEAF_HEIGHT + treeHeight + MARGIN;
        }
        width = Math.max(widest + MARGIN, 420);
        double bars = barTop;
        long numa = topology.switches().stream().filter(h -> h.kind() == Switch.Kind.NUMA).count();
        if (numa > 2) {
            height += 40;
        }
        for (Switch sw : topology.switches()) {
            if (sw.kind() == Switch.Kind.NVSWITCH) {
                boxes[sw.id()] = new Box(MARGIN, bars, width - 2 * MARGIN, barHeight, true);
                bars += barHeight + 8;
            } else if (sw.kind() == Switch.Kind.NETWORK) {
                boxes[sw.id()] =
                        new Box(MARGIN, height - MARGIN + 12, width - 2 * MARGIN, BAR, true);
                height += BAR + LEVEL / 2;
            }
        }
    }

    /** Places subtrees side by side; returns where the last one ends. */
    private double row(List<Integer> subtrees, double leafTop, boolean up) {
        double x = MARGIN;
        for (int root : subtrees) {
            x = subtree(root, x, leafTop, up) + 2 * gap;
        }
        return x - 2 * gap;
    }

    private double subtree(int node, double x, double leafTop, boolean up) {
        if (!(topology.nodes().get(node) instanceof Switch)) {
            boxes[node] = new Box(x, leafTop, leafWidth, LEAF_HEIGHT, up);
            return x + leafWidth;
        }
        double end = x;
        for (int child : children.get(node)) {
            end = subtree(child, end == x ? x : end + gap, leafTop, up);
        }
        int name = Math.min(NAME, topology.nodes().get(node).name().length());
        end = Math.max(end, x + Math.max(leafWidth, name * CHARACTER + 2));
        double y =
                up
                        ? leafTop + LEAF_HEIGHT + level[node] * LEVEL - BAR
                        : leafTop - level[node] * LEVEL;
        boxes[node] = new Box(x, y, end - x, BAR, up);
        return end;
    }

    private double highestArch() {
        double most = 0;
        for (Link link : topology.links()) {
            if (arched(link)) {
                most = Math.max(most, rise(boxes[link.a()], boxes[link.b()]));
            }
        }
        return most == 0 ? 0 : most + 18;
    }

    private boolean arched(Link link) {
        return !(topology.nodes().get(link.a()) instanceof Switch)
                && !(topology.nodes().get(link.b()) instanceof Switch);
    }

    private double rise(Box a, Box b) {
        double apart = Math.abs(a.middle() - b.middle());
        return 24 + Math.min(0.34 * apart, 120 + 0.16 * apart);
    }

    private void connect() {
        for (Link link : topology.links()) {
            Box a = boxes[link.a()];
            Box b = boxes[link.b()];
            lines[link.id()] =
                    arched(link)
                            ? arch(a, b)
                            : link.kind() == LinkKind.SMP ? between(link) : stem(link, a, b);
        }
    }

    private Line arch(Box a, Box b) {
        if (a.up() != b.up()) {
            return new Line(
                    a.middle(),
                    a.up() ? a.y() : a.bottom(),
                    b.middle(),
                    b.up() ? b.y() : b.bottom(),
                    0);
        }
        double y = a.up() ? a.y() : a.bottom();
        double rise = rise(a, b);
        return new Line(a.middle(), y, b.middle(), y, a.up() ? rise : -rise);
    }

    /** Between NUMA nodes: straight to the neighbour, else round those in between. */
    private Line between(Link link) {
        Box a = boxes[link.a()];
        Box b = boxes[link.b()];
        if (a.up() != b.up()) {
            if (a.x() <= MARGIN && b.x() <= MARGIN) {
                boxes[link.a()] = reaching(a);
                boxes[link.b()] = reaching(b);
                return new Line(MARGIN / 2, a.centre(), MARGIN / 2, b.centre(), 0);
            }
            return new Line(a.middle(), a.centre(), b.middle(), b.centre(), 0);
        }
        boolean inOrder = a.x() < b.x();
        Box left = inOrder ? a : b;
        Box right = inOrder ? b : a;
        boolean neighbours = right.x() - (left.x() + left.width()) < 3 * gap;
        Line line;
        if (neighbours && left.y() == right.y()) {
            line = new Line(left.x() + left.width(), left.centre(), right.x(), right.centre(), 0);
        } else {
            double y = left.up() ? left.bottom() : left.y();
            line = new Line(left.middle(), y, right.middle(), y, left.up() ? -30 : 30);
        }
        return inOrder ? line : line.reversed();
    }

    /** The same box, into the left margin. */
    private static Box reaching(Box box) {
        double more = box.x() - MARGIN / 4;
        return new Box(MARGIN / 4, box.y(), box.width() + more, box.height(), box.up());
    }

    /** A vertical line out of the narrower box into the wider one. */
    private Line stem(Link link, Box a, Box b) {
        boolean outward = a.width() <= b.width();
        Box narrow = outward ? a : b;
        Box wide = outward ? b : a;
        int inner = outward ? link.a() : link.b();
        double x = narrow.middle();
        // Off the middle, where the line to the parent is.
        boolean toNetwork = link.kind() == LinkKind.NETWORK;
        if (toNetwork || (link.kind() == LinkKind.C2C && parent[inner] != link.opposite(inner))) {
            x += narrow.width() / 4;
        }
        if (x < wide.x() || x > wide.x() + wide.width()) {
            Line slanted =
                    new Line(narrow.middle(), narrow.centre(), wide.middle(), wide.centre(), 0);
            return outward ? slanted : slanted.reversed();
        }
        boolean down = wide.y() > narrow.y();
        Line line =
                new Line(
                        x,
                        down ? narrow.bottom() : narrow.y(),
                        x,
                        down ? wide.y() : wide.bottom(),
                        0);
        return outward ? line : line.reversed();
    }
}

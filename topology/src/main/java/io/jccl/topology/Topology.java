package io.jccl.topology;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A machine: GPUs, NICs, the switches between them, and the bandwidth of the links.
 *
 * {@snippet class="snippets.Topologies" region="read"}
 *
 * <p>Whatever paths share is a link of the graph: two GPUs below one PCIe switch share its uplink;
 * all traffic from the GPUs of one socket to another shares the link between the CPUs. A set of
 * routes is therefore feasible if no arc carries more than its bandwidth.
 *
 * <p>Immutable, and safe for use by many threads.
 */
public final class Topology {
    private final String name;
    private final List<Gpu> gpus;
    private final List<Nic> nics;
    private final List<Switch> switches;
    private final List<Node> nodes;
    private final List<Link> links;
    private final List<Warning> warnings;
    private final Map<Long, PathCode> codes;

    /** Links at each node. */
    private final List<List<Link>> incident;

    private final Routes routes;

    /** By GPU: its number in its machine, where that is not {@link Gpu#index()}. */
    private final Map<Integer, Integer> devices;

    /** By NUMA node. */
    private final Map<Integer, Processor> processors;

    private final List<String> machines;

    /** By node, where it is not the first machine. */
    private final Map<Integer, Integer> homes;

    private Topology(Builder b) {
        name = b.name;
        gpus = List.copyOf(b.gpus);
        nics = List.copyOf(b.nics);
        switches = List.copyOf(b.switches);
        List<Node> all = new ArrayList<>(gpus);
        all.addAll(nics);
        all.addAll(switches);
        nodes = List.copyOf(all);
        links = List.copyOf(b.links);
        warnings = List.copyOf(b.warnings);
        codes = new HashMap<>(b.codes); // Map.copyOf probes linearly, which is slow for pairs
        Map<String, Node> byName = new HashMap<>();
        for (int i = 0; i < nodes.size(); i++) {
            Node node = nodes.get(i);
            if (node.id() != i) {
                throw new IllegalStateException("node " + node + " is at index " + i);
            }
            if (byName.put(node.name(), node) != null) {
                throw new IllegalArgumentException(
                        "two nodes are called " + node.name() + ": names must be unique");
            }
        }
        List<List<Link>> at = new ArrayList<>();
        for (int i = 0; i < nodes.size(); i++) {
            at.add(new ArrayList<>());
        }
        for (Link link : links) {
            at.get(link.a()).add(link);
            at.get(link.b()).add(link);
        }
        at.replaceAll(Collections::unmodifiableList);
        incident = at;
        routes = new Routes(this);
        devices = Map.copyOf(b.devices);
        processors = Map.copyOf(b.processors);
        machines = List.copyOf(b.machines);
        homes = Map.copyOf(b.homes);
    }

    /**
     * A display name: a file, a host, or a model of machine.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * GPUs in the order of the source.
     *
     * @return the GPUs; plans refer to them by their index in this list
     */
    public List<Gpu> gpus() {
        return gpus;
    }

    /**
     * NICs in the order of the source.
     *
     * @return the NICs
     */
    public List<Nic> nics() {
        return nics;
    }

    /**
     * Switches, bridges, NUMA nodes.
     *
     * @return the switches
     */
    public List<Switch> switches() {
        return switches;
    }

    /**
     * GPUs, then NICs, then switches.
     *
     * @return all nodes, by id
     */
    public List<Node> nodes() {
        return nodes;
    }

    /**
     * All links.
     *
     * @return the links, by id
     */
    public List<Link> links() {
        return links;
    }

    /**
     * The links at a node.
     *
     * @param node id of a node
     * @return its links
     */
    public List<Link> links(int node) {
        return incident.get(node);
    }

    /**
     * Warnings of the reader.
     *
     * @return the warnings, in the order of the source
     */
    public List<Warning> warnings() {
        return warnings;
    }

    /**
     * The machines whose parts this is, by the ids that the source gives them: NCCL's {@code
     * host_hash}.
     *
     * @return the ids, in the order of their first CPU; none if the source does not mention
     *     machines, so that one or many may be meant
     */
    public List<String> machines() {
        return machines;
    }

    /**
     * The machine that a node belongs to.
     *
     * @param node id of a GPU, NIC, PCIe switch, host bridge or NUMA node
     * @return index in {@link #machines()}; 0 if there are none
     */
    public int machine(int node) {
        return homes.getOrDefault(node, 0);
    }

    /**
     * The number that nvidia-smi gives a GPU in its own machine.
     *
     * @param gpu id of a GPU
     * @return {@link Gpu#index()}, unless there are several machines
     */
    public int device(int gpu) {
        Integer device = devices.get(gpu);
        return device == null ? gpus.get(gpu).index() : device;
    }

    /**
     * The CPU of a NUMA node.
     *
     * @param numa id of a NUMA node
     * @return the CPU, or null if the source does not mention it
     */
    public @Nullable Processor processor(int numa) {
        return processors.get(numa);
    }

    /**
     * Bandwidth of an arc.
     *
     * @param arc see {@link Link}
     * @return GB/s
     */
    public double capacity(int arc) {
        return links.get(arc >> 1).gbps();
    }

    /**
     * The code of a pair: as printed in the source, else derived from the graph.
     *
     * @param a id of a GPU or NIC
     * @param b id of another
     * @return the code
     */
    public PathCode code(int a, int b) {
        if (a == b) {
            return PathCode.SELF;
        }
        PathCode printed = codes.get(key(a, b));
        return printed != null ? printed : routes.code(a, b);
    }

    /**
     * The node where an arc ends.
     *
     * @param arc see {@link Link}
     * @return id of the node at its end
     */
    public int head(int arc) {
        Link link = links.get(arc >> 1);
        return (arc & 1) == 0 ? link.b() : link.a();
    }

    /**
     * The node where an arc starts.
     *
     * @param arc see {@link Link}
     * @return id of the node at its start
     */
    public int tail(int arc) {
        return head(arc ^ 1);
    }

    /**
     * The best route between two nodes: the widest, and among equally wide ones the shortest.
     * Routes do not pass through GPUs or NICs, since no copy engine or NCCL transport forwards by
     * itself.
     *
     * @param from id of a node
     * @param to id of a node
     * @return the route, or null if there is none
     */
    public @Nullable Route route(int from, int to) {
        return routes.get(from, to);
    }

    /** Unique for a pair, and such that the hash of the Long differs for most pairs. */
    private static long key(int a, int b) {
        return Math.min(a, b) * 0x9E37_79B1L + Math.max(a, b);
    }

    @Override
    public String toString() {
        return "%s: %s GPUs, %s NICs, %s links"
                .formatted(name, gpus.size(), nics.size(), links.size());
    }

    /**
     * Builds a {@link Topology}: first GPUs, then NICs, then switches, then links. Not thread-safe.
     */
    public static final class Builder {
        private final String name;
        private final List<Gpu> gpus = new ArrayList<>();
        private final List<Nic> nics = new ArrayList<>();
        private final List<Switch> switches = new ArrayList<>();
        private final List<Link> links = new ArrayList<>();
        private final List<Warning> warnings = new ArrayList<>();
        private final Map<Long, PathCode> codes = new HashMap<>();
        private final Map<Integer, Integer> devices = new HashMap<>();
        private final Map<Integer, Processor> processors = new HashMap<>();
        private final List<String> machines = new ArrayList<>();
        private final Map<Integer, Integer> homes = new HashMap<>();

        /**
         * Starts with an empty machine.
         *
         * @param name a display name
         */
        public Builder(String name) {
            this.name = Objects.requireNonNull(name, "name");
        }

        /**
         * The number of nodes so far.
         *
         * @return the id that the next node must have
         */
        public int nextId() {
            return gpus.size() + nics.size() + switches.size();
        }

        /**
         * Adds a GPU.
         *
         * @param gpu with {@link #nextId()} as id
         * @return its id
         */
        public int add(Gpu gpu) {
            require(nics.isEmpty() && switches.isEmpty(), gpu);
            gpus.add(gpu);
            return gpu.id();
        }

        /**
         * Adds a GPU of unknown model.
         *
         * @param index its number; it is named GPU followed by this number
         * @param sm compute capability times ten; 0 if unknown
         * @return its id
         */
        public int addGpu(int index, int sm) {
            return add(
                    new Gpu(
                            nextId(),
                            "GPU" + index,
                            index,
                            null,
                            sm,
                            Source.DEFAULT,
                            null,
                            null,
                            null,
                            null));
        }

        /**
         * Adds a NIC.
         *
         * @param nic with {@link #nextId()} as id
         * @return its id
         */
        public int add(Nic nic) {
            require(switches.isEmpty(), nic);
            nics.add(nic);
            return nic.id();
        }

        /**
         * Adds a switch.
         *
         * @param name unique
         * @param kind what it is
         * @return its id
         */
        public int addSwitch(String name, Switch.Kind kind) {
            Switch sw = new Switch(nextId(), name, kind);
            switches.add(sw);
            return sw.id();
        }

        /**
         * Adds a link.
         *
         * @param a id of one end
         * @param b id of the other end
         * @param kind its technology
         * @param count how many physical links are bonded
         * @param gbps GB/s per direction, of all together
         * @param source where the figure comes from
         * @return its id
         */
        public int link(int a, int b, LinkKind kind, int count, double gbps, Source source) {
            if (Math.max(a, b) >= nextId()) {
                throw new IllegalArgumentException(
                        "link from " + a + " to " + b + ", but there are " + nextId() + " nodes");
            }
            links.add(new Link(links.size(), a, b, kind, count, gbps, source));
            return links.size() - 1;
        }

        /**
         * Records the code that the source printed for a pair.
         *
         * @param a id of a GPU or NIC
         * @param b id of another
         * @param code what was printed
         */
        public void code(int a, int b, PathCode code) {
            codes.put(key(a, b), code);
        }

        /**
         * Adds a machine. A source that has only one need not add it.
         *
         * @param id its id in the source
         * @return its index, for {@link #machine(int, int)}
         */
        public int addMachine(String id) {
            machines.add(Objects.requireNonNull(id, "id"));
            return machines.size() - 1;
        }

        /**
         * Records which machine a node belongs to.
         *
         * @param node id of a node
         * @param machine index of a machine
         */
        public void machine(int node, int machine) {
            homes.put(node, Objects.checkIndex(machine, machines.size()));
        }

        /**
         * Records the number of a GPU in its own machine.
         *
         * @param gpu id of a GPU
         * @param device its number, as nvidia-smi prints it there
         */
        public void device(int gpu, int device) {
            devices.put(gpu, device);
        }

        /**
         * Records the CPU of a NUMA node.
         *
         * @param numa id of a NUMA node
         * @param processor the CPU
         */
        public void processor(int numa, Processor processor) {
            processors.put(numa, processor);
        }

        /**
         * Takes machines, numbers of GPUs in them, and CPUs from a graph with the same nodes.
         *
         * @param other the graph
         */
        public void machinesOf(Topology other) {
            machines.addAll(other.machines);
            homes.putAll(other.homes);
            devices.putAll(other.devices);
            processors.putAll(other.processors);
        }

        /**
         * Adds a warning.
         *
         * @param warning the warning
         */
        public void warn(Warning warning) {
            warnings.add(warning);
        }

        /**
         * Builds the topology.
         *
         * @return the topology
         */
        public Topology build() {
            return new Topology(this);
        }

        private void require(boolean inOrder, Node node) {
            if (!inOrder || node.id() != nextId()) {
                throw new IllegalArgumentException(
                        node + " must have id " + nextId() + ", and GPUs come first, then NICs");
            }
        }
    }
}

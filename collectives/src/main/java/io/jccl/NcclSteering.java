package io.jccl;

import io.jccl.bindings.internal.ProcessEnvironment;
import io.jccl.error.JcclException;
import io.jccl.topology.Gpu;
import io.jccl.topology.Operation;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.nccl.GraphXml;
import io.jccl.topology.nccl.TopologyXml;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Passes a plan to NCCL: algorithm and protocol, and files with the machine's topology and the
 * channels to use. NCCL's own search is good, so by default this only advises: nothing is set, and
 * {@link #advice} returns the settings and the reason for each. In mode {@link Mode#ENFORCE} the
 * variables are set in this process when the first communicator is made with {@link
 * CommunicatorOptions#withSteering}.
 *
 * {@snippet class="snippets.Collectives" region="steering"}
 *
 * <p><b>Ranks</b> keep the caller's numbering: entry <i>i</i> of {@code Communicator.local(devices,
 * options)} is on {@code devices.get(i)}, steered or not. To make consecutive ranks neighbours on a
 * ring of the plan, pass {@link #ordered} devices.
 *
 * <p><b>Environment:</b> NCCL reads these variables when a communicator is created, and some others
 * only once per process. A steering can therefore not be enforced after this process has created a
 * communicator without it or enforced another one. Variables that are already set are kept, with a
 * note in the advice. {@link System#getenv} may not show variables set here.
 *
 * <p><b>Threads:</b> any. Variables are set for the whole process, so enforce before other native
 * threads read the environment.
 *
 * <p>Not yet run on a GPU.
 */
public final class NcclSteering implements AutoCloseable {
    /** Whether variables are set. */
    public enum Mode {
        /** Nothing is set. */
        ADVISE,
        /** Variables are set before the first NCCL communicator is created. */
        ENFORCE
    }

    /**
     * An environment variable of NCCL.
     *
     * @param variable its name
     * @param value its value
     * @param why the reason, one line
     */
    public record Setting(String variable, String value, String why) {}

    /**
     * The settings of NCCL that follow from a plan.
     *
     * @param order ranks in the order of the plan's first ring; their own order if it has none
     * @param settings the variables, whether set or only advised
     * @param notes what is omitted and why, one line each
     */
    public record Advice(List<Integer> order, List<Setting> settings, List<String> notes) {
        /** Copies the lists. */
        public Advice {
            order = List.copyOf(order);
            settings = List.copyOf(settings);
            notes = List.copyOf(notes);
        }

        /**
         * The advice as readable text.
         *
         * @return lines, each ending in a line feed
         */
        public String text() {
            StringBuilder text = new StringBuilder("rank order: " + order + "\n");
            for (Setting s : settings) {
                text.append(s.variable()).append('=').append(s.value());
                text.append("  (").append(s.why()).append(")\n");
            }
            for (String note : notes) {
                text.append("note: ").append(note).append('\n');
            }
            return text.toString();
        }
    }

    /** Names of the operations in {@code NCCL_ALGO}. Source: NCCL 2.30, src/graph/tuning.cc. */
    private static final Map<Operation, String> FUNCTIONS =
            new EnumMap<>(
                    Map.of(
                            Operation.ALL_REDUCE, "allreduce",
                            Operation.ALL_GATHER, "allgather",
                            Operation.REDUCE_SCATTER, "reducescatter",
                            Operation.BROADCAST, "broadcast",
                            Operation.REDUCE, "reduce"));

    /** The cost model's algorithms in {@code NCCL_ALGO}. */
    private static final Map<io.jccl.topology.cost.Algorithm, String> NAMES =
            new EnumMap<>(
                    Map.of(
                            io.jccl.topology.cost.Algorithm.RING, "ring",
                            io.jccl.topology.cost.Algorithm.TREE, "tree",
                            io.jccl.topology.cost.Algorithm.NVLS, "nvls",
                            io.jccl.topology.cost.Algorithm.NVLS_TREE, "nvlstree",
                            io.jccl.topology.cost.Algorithm.PAT, "pat"));

    private static final Set<String> ALGORITHMS =
            Set.of("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat");
    private static final Set<String> PROTOCOLS = Set.of("ll", "ll128", "simple");

    private static final String TOPO_FILE = "NCCL_TOPO_FILE";
    private static final String GRAPH_FILE = "NCCL_GRAPH_FILE";

    private static final Object PROCESS = new Object();

    /** NCCL communicators created, or being created; guarded by {@link #PROCESS}. */
    private static long begun;

    /** The enforced steering; guarded by {@link #PROCESS}. */
    private static @Nullable NcclSteering enforced;

    private final Mode mode;
    private final Advice advice;
    private final SteeringFiles files;

    /** Variables that this object has set; guarded by {@link #PROCESS}. */
    private final List<String> set = new ArrayList<>();

    private boolean closed;

    private NcclSteering(Mode mode, Advice advice, SteeringFiles files) {
        this.mode = mode;
        this.advice = advice;
        this.files = files;
    }

    /**
     * Creates a builder.
     *
     * @param plan plan with the communicator's ranks
     * @return a builder in mode {@link Mode#ADVISE} that sets nothing yet
     */
    public static Builder builder(Plan plan) {
        return new Builder(plan);
    }

    /** Collects settings of NCCL. Not thread-safe. */
    public static final class Builder {
        private final Plan plan;
        private final Map<String, String> algorithms = new LinkedHashMap<>();
        private final Map<String, String> protocols = new LinkedHashMap<>();
        private final List<String> reasons = new ArrayList<>();
        private final Map<String, String> files = new LinkedHashMap<>();
        private final Map<String, String> fileReasons = new LinkedHashMap<>();
        private final List<String> notes = new ArrayList<>();
        private Mode mode = Mode.ADVISE;

        private Builder(Plan plan) {
            this.plan = Objects.requireNonNull(plan, "plan");
        }

        /**
         * Sets the mode.
         *
         * @param mode whether variables are set
         * @return this builder
         */
        public Builder mode(Mode mode) {
            this.mode = Objects.requireNonNull(mode, "mode");
            return this;
        }

        /**
         * Sets algorithm and protocol of one operation for all sizes; NCCL continues to choose
         * those of other operations. The format is that of NCCL 2.30; much older versions do not
         * distinguish operations.
         *
         * @param op allReduce, allGather, reduceScatter, broadcast or reduce
         * @param algorithm NCCL's name: tree, ring, collnetdirect, collnetchain, nvls, nvlstree,
         *     pat
         * @param protocol LL, LL128 or Simple
         * @param why the reason, one line
         * @return this builder
         * @throws IllegalArgumentException if NCCL has no such algorithm or protocol, or does not
         *     let one choose for the operation
         */
        public Builder algorithm(Operation op, String algorithm, String protocol, String why) {
            String function = FUNCTIONS.get(op);
            if (function == null) {
                throw new IllegalArgumentException(
                        ("NCCL chooses no algorithm for %s, expected all_reduce, all_gather,"
                                        + " reduce_scatter, broadcast or reduce")
                                .formatted(Objects.requireNonNull(op, "op").command()));
            }
            check("algorithm", algorithm, ALGORITHMS);
            check("protocol", protocol, PROTOCOLS);
            algorithms.put(function, algorithm);
            protocols.put(function, protocol);
            reasons.add(why);
            return this;
        }

        /**
         * Sets algorithm and protocol of one operation to the fastest according to the cost model,
         * which uses NCCL's constants. The setting applies to all sizes, so pass the size that
         * matters. Omitted, with a note, if NCCL has no counterpart.
         *
         * @param op any operation
         * @param bytes size as nccl-tests prints it
         * @return this builder
         */
        public Builder algorithm(Operation op, long bytes) {
            Prediction p = null;
            for (Prediction each :
                    CostModel.nccl().tune(plan.topology(), plan.gpus(), op).predict(bytes)) {
                // The model also has direct exchange, which NCCL does not offer as a choice.
                if (NAMES.containsKey(each.algorithm())
                        && (p == null || each.timeUs() < p.timeUs())) {
                    p = each;
                }
            }
            if (p == null || !FUNCTIONS.containsKey(op)) {
                notes.add("no NCCL_ALGO for " + op.command() + ": NCCL has no choice for it");
                return this;
            }
            String name = Objects.requireNonNull(NAMES.get(p.algorithm()));
            return algorithm(
                    op,
                    name,
                    p.protocol() == Protocol.SIMPLE ? "Simple" : p.protocol().name(),
                    String.format(
                            Locale.ROOT,
                            "%s of %d bytes: %.1f us, %.2f GB/s of bus bandwidth predicted",
                            op.command(),
                            bytes,
                            p.timeUs(),
                            p.busbwGBps()));
        }

        private static void check(String what, String name, Set<String> known) {
            if (!known.contains(name.toLowerCase(Locale.ROOT))) {
                throw new IllegalArgumentException(
                        what + " '" + name + "' is not NCCL's, expected one of " + known);
            }
        }

        /**
         * Passes the plan's topology to NCCL, as {@link TopologyXml} writes it, instead of the one
         * that NCCL would detect. Omitted, with a note, if a GPU's PCI address, by which NCCL
         * identifies it, is unknown.
         *
         * @return this builder
         */
        public Builder topologyFile() {
            String unknown = null;
            for (Gpu gpu : plan.topology().gpus()) {
                unknown = gpu.busId() == null && unknown == null ? gpu.name() : unknown;
            }
            if (unknown != null) {
                notes.add(
                        "no NCCL_TOPO_FILE: the PCI address of "
                                + unknown
                                + " is not known, and NCCL finds GPUs by it");
                return this;
            }
            return file(
                    TOPO_FILE,
                    () -> TopologyXml.write(plan.topology()),
                    "links and bandwidths of " + plan.topology().name() + " as the plan has them");
        }

        /**
         * Passes the plan's rings to NCCL, as {@link GraphXml} writes them, instead of those that
         * NCCL would find. Omitted, with a note, if the plan has none.
         *
         * @return this builder
         */
        public Builder graphFile() {
            return file(
                    GRAPH_FILE,
                    () -> GraphXml.write(plan),
                    "%s channels with %s GB/s together, bound %s by %s"
                            .formatted(
                                    plan.channels().size(),
                                    plan.bandwidthGBps(),
                                    plan.boundGBps(),
                                    plan.bound()));
        }

        private Builder file(String variable, Supplier<String> xml, String why) {
            try {
                files.put(variable, xml.get());
                fileReasons.put(variable, why);
            } catch (IllegalArgumentException e) {
                notes.add("no " + variable + ": " + e.getMessage());
            }
            return this;
        }

        /**
         * Builds the steering; files are written to a private folder.
         *
         * @return a steering, to be closed by the caller once the NCCL communicators are created
         * @throws JcclException if a file cannot be written
         */
        public NcclSteering build() {
            List<Setting> settings = new ArrayList<>();
            List<String> notes = new ArrayList<>(this.notes);
            if (!algorithms.isEmpty()) {
                String why = String.join("; ", reasons);
                settings.add(new Setting("NCCL_ALGO", choices(algorithms), why));
                settings.add(new Setting("NCCL_PROTO", choices(protocols), why));
            }
            SteeringFiles written = SteeringFiles.write(files);
            boolean done = false;
            try {
                written.paths()
                        .forEach((variable, path) ->
                                settings.add(
                                        new Setting(
                                                variable,
                                                path.toString(),
                                                fileReasons.getOrDefault(variable, ""))));
                for (Setting s : settings) {
                    String there = ProcessEnvironment.get(s.variable());
                    if (there != null) {
                        notes.add(s.variable() + " is set to " + there + " already, which stays");
                    }
                }
                NcclSteering steering =
                        new NcclSteering(mode, new Advice(order(notes), settings, notes), written);
                done = true;
                return steering;
            } finally {
                if (!done) {
                    written.close();
                }
            }
        }

        private static String choices(Map<String, String> byFunction) {
            List<String> parts = new ArrayList<>();
            byFunction.forEach((function, choice) -> parts.add(function + ":" + choice));
            return String.join(";", parts);
        }

        /** Ranks in the order of the first ring. */
        private List<Integer> order(List<String> notes) {
            for (Channel c : plan.channels()) {
                if (c instanceof Channel.Ring ring) {
                    List<Integer> gpus = ring.order();
                    // Starts at rank 0, so that a ring in rank order changes nothing.
                    int first = gpus.indexOf(plan.gpus().getFirst());
                    List<Integer> ranks = new ArrayList<>();
                    for (int i = 0; i < gpus.size(); i++) {
                        ranks.add(plan.gpus().indexOf(gpus.get((first + i) % gpus.size())));
                    }
                    return ranks;
                }
            }
            notes.add("the plan has no ring, so ranks stay in their order");
            List<Integer> ranks = new ArrayList<>();
            for (int r = 0; r < plan.gpus().size(); r++) {
                ranks.add(r);
            }
            return ranks;
        }
    }

    /**
     * The mode.
     *
     * @return whether variables are set
     */
    public Mode mode() {
        return mode;
    }

    /**
     * The settings, whether set or only advised.
     *
     * @return the advice
     */
    public Advice advice() {
        return advice;
    }

    /**
     * Sorts a list with one element per rank, such as devices, into the order of the plan's first
     * ring.
     *
     * @param <T> element type
     * @param byRank one element per rank
     * @return the same elements
     * @throws IllegalArgumentException if the number of elements is not the number of ranks
     */
    public <T> List<T> ordered(List<T> byRank) {
        if (byRank.size() != advice.order().size()) {
            throw new IllegalArgumentException(
                    "there are %s entries, expected one for each of the plan's %s ranks"
                            .formatted(byRank.size(), advice.order().size()));
        }
        List<T> all = new ArrayList<>();
        for (int r : advice.order()) {
            all.add(byRank.get(r));
        }
        return List.copyOf(all);
    }

    /**
     * Creates an NCCL communicator. If its arguments are refused, NCCL has read nothing yet, and it
     * does not count.
     *
     * @throws IllegalStateException if it is too late to enforce this
     */
    static <T> T begin(CommunicatorOptions options, Supplier<T> creation) {
        NcclSteering steering = options.steering();
        synchronized (PROCESS) {
            if (steering != null && steering.mode == Mode.ENFORCE && enforced != steering) {
                steering.enforce();
            }
            begun++;
        }
        try {
            return creation.get();
        } catch (IllegalArgumentException | NullPointerException e) {
            synchronized (PROCESS) {
                begun--;
            }
            throw e;
        }
    }

    private void enforce() {
        if (closed) {
            throw new IllegalStateException("the steering of NCCL is closed; make another");
        }
        if (begun > 0) {
            throw new IllegalStateException(
                    ("NCCL cannot be steered any more: a communicator was made in this process %s,"
                                    + " and NCCL reads some of its variables only once; enforce"
                                    + " for the first communicator, or set the variables before"
                                    + " the program starts:\n%s")
                            .formatted(
                                    enforced == null ? "without steering" : "with another steering",
                                    advice.text()));
        }
        if (enforced != null) {
            enforced.unset();
        }
        enforced = this;
        for (Setting s : advice.settings()) {
            if (ProcessEnvironment.get(s.variable()) == null) {
                ProcessEnvironment.set(s.variable(), s.value());
                set.add(s.variable());
            }
        }
    }

    /**
     * Unsets the variables that this object has set and deletes its files. Communicators created
     * later are not steered; existing ones are not affected. Closing twice has no effect.
     */
    @Override
    public void close() {
        synchronized (PROCESS) {
            if (closed) {
                return;
            }
            closed = true;
            unset();
        }
        files.close();
    }

    private void unset() {
        for (String variable : set) {
            ProcessEnvironment.set(variable, null);
        }
        set.clear();
    }

    @Override
    public String toString() {
        return mode.name().toLowerCase(Locale.ROOT) + ": " + advice.settings();
    }
}

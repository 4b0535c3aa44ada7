package io.jccl.bindings;

import io.jccl.bindings.generated.nccl.ncclConfig_t;
import io.jccl.bindings.generated.nccl.ncclSimInfo_t;
import io.jccl.bindings.generated.nccl.nccl_h;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * A {@code ncclConfig_t}, with every field optional.
 *
 * <p>NCCL copies the smaller of the caller's struct and its own, and resets fields that are newer
 * than the version in the struct; it silently ignores fields that it does not know (parseCommConfig
 * of NCCL's init.cc). The struct is therefore built for the smaller of the loaded version and the
 * header's, and a field that the loaded version lacks is an error here.
 *
 * <p>Communicators of every engine have one in their options. Therefore no generated class is
 * initialised before {@link #allocate}: generated classes call restricted methods, which programs
 * without NCCL need not permit.
 *
 * <p><b>Threads:</b> immutable.
 */
public final class NcclConfig {
    /** The fields that a user may set, in the order of the struct. */
    public enum Field {
        /** 0: calls return {@code ncclInProgress} and are polled; 1, the default: they block. */
        BLOCKING("blocking", "2.14"),
        /** Blocks per cluster, 0 to 8. */
        CGA_CLUSTER_SIZE("cgaClusterSize", "2.17"),
        /** Minimum number of blocks (channels). */
        MIN_CTAS("minCTAs", "2.17"),
        /** Maximum number of blocks (channels). */
        MAX_CTAS("maxCTAs", "2.17"),
        /** Network module, such as {@code Socket}. */
        NET_NAME("netName", "2.17"),
        /** 1: communicators created by split share resources with their parent. */
        SPLIT_SHARE("splitShare", "2.18"),
        /** Traffic class of the network. */
        TRAFFIC_CLASS("trafficClass", "2.26"),
        /** Name in NCCL's log and tools. */
        COMM_NAME("commName", "2.27"),
        /** 1: use CollNet. */
        COLLNET_ENABLE("collnetEnable", "2.27"),
        /** {@code NCCL_CTA_POLICY_*}. */
        CTA_POLICY("CTAPolicy", "2.27"),
        /** 1: communicators created by shrink share resources with their parent. */
        SHRINK_SHARE("shrinkShare", "2.27"),
        /** Blocks for NVLink SHARP. */
        NVLS_CTAS("nvlsCTAs", "2.27"),
        /** Channels to each peer over the network. */
        N_CHANNELS_PER_NET_PEER("nChannelsPerNetPeer", "2.28"),
        /** 1: schedule for NVLink. */
        NVLINK_CENTRIC_SCHED("nvlinkCentricSched", "2.28"),
        /** How CUDA graphs are mixed with other launches, 0 to 2. */
        GRAPH_USAGE_MODE("graphUsageMode", "2.29"),
        /** Contexts for one-sided operations. */
        NUM_RMA_CTX("numRmaCtx", "2.29"),
        /** Maximum number of a rank's peers in point to point. */
        MAX_P2P_PEERS("maxP2pPeers", "2.30"),
        /** How graph launches are ordered with other streams. */
        GRAPH_STREAM_ORDERING("graphStreamOrdering", "2.30.5");

        private final String cName;
        private final Version since;

        Field(String cName, String since) {
            this.cName = cName;
            this.since = Version.of(since);
        }

        /**
         * The field's name in nccl.h.
         *
         * @return such as {@code maxCTAs}
         */
        public String cName() {
            return cName;
        }

        /**
         * The first version with this field.
         *
         * @return such as 2.17
         */
        public Version since() {
            return since;
        }

        private boolean isText() {
            return this == NET_NAME || this == COMM_NAME;
        }

        private ValueLayout layout() {
            return (ValueLayout) ncclConfig_t.layout().select(path());
        }

        private long offset() {
            return ncclConfig_t.layout().byteOffset(path());
        }

        private PathElement path() {
            return PathElement.groupElement(cName);
        }
    }

    /** INT_MIN, as in nccl.h. */
    private static final int UNDEFINED = Integer.MIN_VALUE;

    private static final List<Field> FIELDS = List.of(Field.values());

    private static final Map<String, MemorySegment> TEXTS = new ConcurrentHashMap<>();

    private final EnumMap<Field, Object> values;

    /** Creates a configuration without any field set. */
    public NcclConfig() {
        this(new EnumMap<>(Field.class));
    }

    private NcclConfig(EnumMap<Field, Object> values) {
        this.values = values;
    }

    /**
     * This configuration with a number.
     *
     * @param field any but the names
     * @param value its value
     * @return a new configuration
     * @throws IllegalArgumentException if the field takes text, or the value is the one by which
     *     NCCL marks a field as not set
     */
    public NcclConfig with(Field field, int value) {
        if (field.isText() || value == UNDEFINED) {
            throw new IllegalArgumentException(
                    "ncclConfig_t.%s cannot be %s: %s"
                            .formatted(
                                    field.cName,
                                    value,
                                    field.isText()
                                            ? "it takes text"
                                            : "NCCL treats that as 'not set'"));
        }
        return and(field, value);
    }

    /**
     * This configuration with a name.
     *
     * @param field {@link Field#NET_NAME} or {@link Field#COMM_NAME}
     * @param value its value
     * @return a new configuration
     * @throws IllegalArgumentException if the field takes a number
     */
    public NcclConfig with(Field field, String value) {
        if (!field.isText()) {
            throw new IllegalArgumentException(
                    "ncclConfig_t.%s cannot be '%s': it takes a number"
                            .formatted(field.cName, value));
        }
        return and(field, value);
    }

    private NcclConfig and(Field field, Object value) {
        EnumMap<Field, Object> more = new EnumMap<>(values);
        more.put(field, value);
        return new NcclConfig(more);
    }

    /**
     * Whether a field is set.
     *
     * @param field any
     * @return true after {@code with}
     */
    public boolean has(Field field) {
        return values.containsKey(field);
    }

    /**
     * The fields that are set but missing in a version.
     *
     * @param runtime the loaded version
     * @return empty if {@link #allocate} accepts it
     */
    public List<Field> unsupported(Version runtime) {
        return values.keySet().stream().filter(f -> !runtime.atLeast(f.since)).toList();
    }

    /**
     * Writes the struct.
     *
     * @param arena the owner of its memory, which NCCL may read from another thread while the
     *     communicator is being created. Strings are never freed: NCCL keeps their addresses until
     *     the last communicator of the process that was created together with this one is destroyed
     * @param runtime the loaded version
     * @return the struct, whose size, magic and version match the smaller of both versions; {@code
     *     blocking} is always set, since NCCL 2.14 to 2.16 accept only 0 and 1
     * @throws UnsupportedOperationException if the loaded version lacks a field that was set, or is
     *     older than 2.14, which has no configuration
     */
    public MemorySegment allocate(Arena arena, Version runtime) {
        if (!runtime.atLeast(Field.BLOCKING.since)) {
            throw new UnsupportedOperationException(
                    "ncclConfig_t needs NCCL " + Field.BLOCKING.since + ", loaded " + runtime);
        }
        for (Field field : unsupported(runtime)) {
            throw new UnsupportedOperationException(
                    "ncclConfig_t.%s needs NCCL %s, loaded %s: do not set it"
                            .formatted(field.cName, field.since, runtime));
        }
        Version built = built(runtime);
        MemorySegment config = arena.allocate(ncclConfig_t.layout());
        ncclConfig_t.size(config, size(built));
        ncclConfig_t.magic(config, nccl_h.NCCL_API_MAGIC());
        ncclConfig_t.version(config, built.ncclCode());
        for (Field field : FIELDS) {
            Object value = values.get(field);
            switch (field.layout()) {
                case ValueLayout.OfInt number ->
                        config.set(number, field.offset(), value == null ? UNDEFINED : (int) value);
                case AddressLayout text ->
                        config.set(
                                text,
                                field.offset(),
                                value == null ? MemorySegment.NULL : kept((String) value));
                default -> throw new AssertionError(field);
            }
        }
        if (!values.containsKey(Field.BLOCKING)) {
            ncclConfig_t.blocking(config, 1);
        }
        return config;
    }

    private static MemorySegment kept(String text) {
        return TEXTS.computeIfAbsent(text, t -> Arena.global().allocateFrom(t));
    }

    /** The fields that are set, by their names in NCCL. */
    @Override
    public String toString() {
        return values.entrySet().stream()
                .map(e -> e.getKey().cName() + "=" + e.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
    }

    /** The version of the header that the layout comes from. */
    static Version header() {
        return Version.ofNccl(nccl_h.NCCL_VERSION_CODE());
    }

    private static Version built(Version runtime) {
        Version header = header();
        return runtime.atLeast(header) ? header : runtime;
    }

    /**
     * The struct's size in a version: up to its last field then, rounded up to a pointer's size.
     */
    private static long size(Version version) {
        long end = 0;
        for (Field field : FIELDS) {
            if (version.atLeast(field.since)) {
                end = field.offset() + field.layout().byteSize();
            }
        }
        long unit = ncclConfig_t.layout().byteAlignment();
        return (end + unit - 1) / unit * unit;
    }

    static MemorySegment simInfo(Arena arena, Version runtime) {
        Version built = built(runtime);
        MemorySegment info = arena.allocate(ncclSimInfo_t.layout());
        ncclSimInfo_t.size(info, ncclSimInfo_t.sizeof());
        ncclSimInfo_t.magic(info, SIM_INFO_MAGIC);
        ncclSimInfo_t.version(info, built.ncclCode());
        ncclSimInfo_t.estimatedTime(info, nccl_h.NCCL_UNDEF_FLOAT());
        return info;
    }

    /** NCCL_SIM_INFO_INITIALIZER of nccl.h, a brace macro, which jextract leaves out. */
    private static final int SIM_INFO_MAGIC = 0x74685283;
}

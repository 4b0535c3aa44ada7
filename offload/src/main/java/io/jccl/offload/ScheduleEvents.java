package io.jccl.offload;

import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/**
 * What a flight recording contains about a schedule. All off unless the recording enables them. The
 * event classes are loaded once there is a recording, since loading them initializes the recorder.
 */
final class ScheduleEvents {
    /** Asked whether they are enabled, never committed. */
    private static final class Probes {
        static final TransferEvent TRANSFER = new TransferEvent();
        static final ComputeEvent COMPUTE = new ComputeEvent();
        static final StallEvent STALL = new StallEvent();
        static final EvictEvent EVICT = new EvictEvent();
    }

    private ScheduleEvents() {}

    static boolean transfers() {
        return FlightRecorder.isInitialized() && Probes.TRANSFER.isEnabled();
    }

    static boolean compute() {
        return FlightRecorder.isInitialized() && Probes.COMPUTE.isEnabled();
    }

    static boolean stalls() {
        return FlightRecorder.isInitialized() && Probes.STALL.isEnabled();
    }

    static boolean evictions() {
        return FlightRecorder.isInitialized() && Probes.EVICT.isEnabled();
    }

    @Name("io.jccl.offload.Transfer")
    @Label("Layer Transfer")
    @Category({"JCCL", "Offload"})
    @Description("A copy of one tensor of a layer, from its request to its end")
    @Enabled(false)
    @StackTrace(false)
    static final class TransferEvent extends Event {
        @Label("Layer")
        String layer = "";

        @Label("Tensor")
        String tensor = "";

        @Label("Direction")
        String direction = "";

        @Label("Bytes")
        @DataAmount
        long bytes;

        @Label("Copy Time")
        @Description("Time in which it was copied; the rest it waited")
        @Timespan(Timespan.NANOSECONDS)
        long copyTime;
    }

    @Name("io.jccl.offload.Compute")
    @Label("Layer Compute")
    @Category({"JCCL", "Offload"})
    @Description("The work of one layer on the compute stream")
    @Enabled(false)
    @StackTrace(false)
    static final class ComputeEvent extends Event {
        @Label("Layer")
        String layer = "";

        @Label("Phase")
        String phase = "";
    }

    @Name("io.jccl.offload.Stall")
    @Label("Compute Stall")
    @Category({"JCCL", "Offload"})
    @Description("The compute stream had nothing to do before this layer")
    @Enabled(false)
    @StackTrace(false)
    static final class StallEvent extends Event {
        @Label("Layer")
        String layer = "";

        @Label("Stall Time")
        @Timespan(Timespan.NANOSECONDS)
        long stallTime;
    }

    @Name("io.jccl.offload.Evict")
    @Label("Layer Eviction")
    @Category({"JCCL", "Offload"})
    @Description("A layer's device memory was given to another layer")
    @Enabled(false)
    @StackTrace(false)
    static final class EvictEvent extends Event {
        @Label("Layer")
        String layer = "";

        @Label("For Layer")
        String forLayer = "";

        @Label("Bytes")
        @DataAmount
        long bytes;
    }
}

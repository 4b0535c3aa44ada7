package io.jccl.cli.perf;

import io.jccl.CommunicatorOptions;
import io.jccl.bindings.NcclConfig;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Engine;
import java.util.List;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** Flags of nccl-tests about GPUs: they have no effect on some engines, or on any. */
final class GpuFlags {
    private static final int NOT_GIVEN = -1;
    private static final int MOST_CTAS = 128;

    @Option(
            names = {"-G", "--cudagraph"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "With --engine nccl: record the iterations as a CUDA graph and launch it this"
                            + " many times; 0 is off (default: 0).")
    private int graphLaunches;

    @Option(
            names = {"-R", "--local_register"},
            paramLabel = "<0|1|2>",
            converter = PerfValues.UpTo2.class,
            description =
                    "With --engine nccl: 1 registers the buffers, 2 makes them symmetric windows"
                            + " (default: 0).")
    private int registration;

    @Option(
            names = {"-x", "--cta_policy"},
            paramLabel = "<0|1|2>",
            converter = PerfValues.UpTo2.class,
            description =
                    "With --engine nccl: NCCL_CTA_POLICY of the communicator (default: NCCL's"
                            + " own).")
    private int ctaPolicy = NOT_GIVEN;

    @Option(
            names = {"-p", "--parallel_init"},
            paramLabel = "<0|1>",
            converter = PerfValues.Flag.class,
            description = "Without effect: ranks of a process are made together (default: 0).")
    private int parallelInit;

    @Option(
            names = {"-y", "--stream_null"},
            paramLabel = "<0|1>",
            converter = PerfValues.Flag.class,
            description =
                    "Without effect: operations go to the default stream of the device"
                            + " (default: 0).")
    private int streamNull;

    @Option(
            names = {"-D", "--device_implementation"},
            paramLabel = "<number>",
            converter = Count.class,
            description =
                    "Without effect: JCCL has no kernels that communicate; needs -R 2, as in"
                            + " nccl-tests (default: 0).")
    private int deviceImplementation;

    @Option(
            names = {"-V", "--device_cta_count"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Without effect: the blocks of what -D would run, 1 to 128 (default: 16).")
    private int deviceCtas = NOT_GIVEN;

    int graphLaunches() {
        return graphLaunches;
    }

    int registration() {
        return registration;
    }

    CommunicatorOptions configured(CommunicatorOptions options) {
        return ctaPolicy == NOT_GIVEN
                ? options
                : options.withNccl(options.nccl().with(NcclConfig.Field.CTA_POLICY, ctaPolicy));
    }

    /**
     * Checks them against each other.
     *
     * @param perIteration {@code -I}
     * @param blocking {@code -z}
     * @throws ParameterException if they contradict each other; the message suggests a remedy
     */
    void check(CommandLine line, boolean perIteration, int blocking) {
        if (graphLaunches > 0 && (perIteration || blocking > 0)) {
            throw new ParameterException(
                    line,
                    "-G/--cudagraph and "
                            + (perIteration ? "-I/--per_iter_timing" : "-z " + blocking)
                            + " exclude each other, as a graph runs all iterations at once; leave"
                            + " out one");
        }
        if (deviceImplementation > 0 && registration != 2) {
            throw new ParameterException(
                    line,
                    "-D/--device_implementation is "
                            + deviceImplementation
                            + ", which needs symmetric windows: add -R 2");
        }
        if (deviceCtas != NOT_GIVEN && (deviceCtas < 1 || deviceCtas > MOST_CTAS)) {
            throw new ParameterException(
                    line,
                    "-V/--device_cta_count is "
                            + deviceCtas
                            + ", expected 1 to "
                            + MOST_CTAS
                            + "; give one of these. The version is shown by --version");
        }
    }

    /** Adds a line for each that was given and has no effect. */
    void note(List<String> notes, Engine engine) {
        boolean nccl = engine == Engine.NCCL;
        String lacks = "engine " + engine.text() + " has no ";
        note(notes, parallelInit != 0, "-p 1", "ranks of one process are made together");
        note(
                notes,
                streamNull != 0,
                "-y 1",
                nccl
                        ? "operations go to a separate stream, which CUDA orders with its NULL"
                                + " stream"
                        : lacks + "CUDA streams");
        note(notes, !nccl && graphLaunches > 0, "-G " + graphLaunches, lacks + "CUDA graphs");
        note(notes, !nccl && registration > 0, "-R " + registration, lacks + "buffers to register");
        note(notes, !nccl && ctaPolicy >= 0, "-x " + ctaPolicy, lacks + "thread blocks");
        note(
                notes,
                deviceImplementation > 0,
                "-D " + deviceImplementation,
                "JCCL has no kernels that communicate; the operation itself is measured");
        note(
                notes,
                deviceCtas != NOT_GIVEN,
                "-V " + deviceCtas,
                "it counts the blocks of what -D would run");
    }

    private static void note(List<String> notes, boolean given, String what, String why) {
        if (given) {
            notes.add(what + " has no effect: " + why);
        }
    }
}

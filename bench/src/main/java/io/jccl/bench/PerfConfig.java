package io.jccl.bench;

import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.List;

/**
 * The checked settings of a benchmark command.
 *
 * @param collective the operation
 * @param threads {@code -t}
 * @param devices {@code -g}
 * @param minBytes {@code -b}
 * @param maxBytes {@code -e}
 * @param stepBytes {@code -i}
 * @param stepFactor {@code -f}
 * @param sizes the sizes that follow from these four
 * @param timing timing settings
 * @param checks {@code -c}
 * @param types {@code -d}
 * @param ops {@code -o}
 * @param root {@code -r}, -1 for all
 * @param buffers settings of the buffers
 * @param split how ranks form groups
 * @param minBusBw required mean bus bandwidth in 1e9 bytes per second, of which nine tenths must be
 *     reached; -1 for none
 * @param options settings of the communicator
 * @param notes options that are accepted but have no effect, one line of the header each
 * @param arguments the command line, for the record
 */
public record PerfConfig(
        Collective collective,
        int threads,
        int devices,
        long minBytes,
        long maxBytes,
        long stepBytes,
        int stepFactor,
        List<Long> sizes,
        Timing timing,
        int checks,
        List<DataType> types,
        List<ReduceOp.Kind> ops,
        int root,
        Memory buffers,
        Split split,
        double minBusBw,
        CommunicatorOptions options,
        List<String> notes,
        List<String> arguments) {

    /** Iterations if {@code -n} is not given, from {@link #AUTOMATIC_BELOW} bytes. */
    public static final int ITERATIONS = 20;

    /**
     * Below this size the number of iterations is chosen for the median, unless {@code -n} is
     * given.
     */
    public static final long AUTOMATIC_BELOW = 8 << 20;

    /** {@code -z}: when a rank waits. */
    public enum Blocking {
        /** For its last operation. */
        NONE,
        /** For each, and for the other ranks. */
        BARRIER,
        /** For each. */
        WAIT,
        /** For each and then, outside the time, for the other ranks. */
        BARRIER_APART
    }

    /** {@code -a}: how the ranks' times are combined. */
    public enum Average {
        /** That of rank 0. */
        RANK_0,
        /** Their mean. */
        MEAN,
        /** The shortest. */
        MIN,
        /** The longest. */
        MAX
    }

    /**
     * Timing settings.
     *
     * @param iterations {@code -n}, or {@link #ITERATIONS}
     * @param automatic whether {@code -n} was not given
     * @param warmups {@code -w}
     * @param aggregated {@code -m}
     * @param cycles {@code -N}, 0 without end
     * @param blocking {@code -z}
     * @param perIteration {@code -I}
     * @param skipped {@code -K}
     * @param graphLaunches {@code -G}
     * @param average {@code -a}
     * @param cpuTime {@code -C}
     * @param timestamps {@code -S}
     */
    public record Timing(
            int iterations,
            boolean automatic,
            int warmups,
            int aggregated,
            int cycles,
            Blocking blocking,
            boolean perIteration,
            int skipped,
            int graphLaunches,
            Average average,
            boolean cpuTime,
            boolean timestamps) {

        /**
         * Whether the number of iterations is derived from the time of one.
         *
         * @param bytes size of the operation
         * @return true below {@link #AUTOMATIC_BELOW} unless {@code -n}, {@code -I} or {@code -G}
         *     is given
         */
        public boolean isAutomatic(long bytes) {
            return automatic && !perIteration && graphLaunches == 0 && bytes < AUTOMATIC_BELOW;
        }
    }

    /**
     * Settings of the buffers.
     *
     * @param unalign {@code -u}, elements before the first
     * @param registration {@code -R}: 0 none, 1 local, 2 symmetric windows
     * @param reported {@code -M}
     */
    public record Memory(int unalign, int registration, boolean reported) {}
}

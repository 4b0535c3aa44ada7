package io.jccl.bench;

import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.List;

/**
 * What one benchmark command was asked to do, checked.
 *
 * @param collective the operation
 * @param threads {@code -t}
 * @param devices {@code -g}
 * @param minBytes {@code -b}
 * @param maxBytes {@code -e}
 * @param stepBytes {@code -i}
 * @param stepFactor {@code -f}
 * @param sizes the sizes that follow from these four
 * @param iterations {@code -n}
 * @param warmups {@code -w}
 * @param aggregated {@code -m}
 * @param checks {@code -c}
 * @param blocking {@code -z}
 * @param perIteration {@code -I}
 * @param types {@code -d}
 * @param ops {@code -o}
 * @param root {@code -r}, -1 for all
 * @param options settings of the communicator
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
        int iterations,
        int warmups,
        int aggregated,
        int checks,
        boolean blocking,
        boolean perIteration,
        List<DataType> types,
        List<ReduceOp.Kind> ops,
        int root,
        CommunicatorOptions options,
        List<String> arguments) {

    public int localRanks() {
        return threads * devices;
    }
}

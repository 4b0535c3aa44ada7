package io.jccl.bench.probe;

import io.jccl.bench.BandwidthCase;
import io.jccl.bench.BandwidthRun;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Copies between host and devices, by the cases of {@code jccl bandwidth}. */
final class CopyProbe {
    /** Bytes per sample: enough for the resolution of the clock. */
    private static final long SAMPLE_BYTES = 64L << 20;

    private static final int MOST_COPIES = 200;
    private static final int SAMPLES = 3;
    private static final int MOST_ROUNDS = 5;

    private final List<? extends Device> devices;

    CopyProbe(List<? extends Device> devices) {
        this.devices = devices;
    }

    /** The cases that move bulk data. */
    List<ProbeResult.Copy> run(long bytes, Budget budget, Consumer<String> progress) {
        boolean cuda = devices.getFirst().kind() == Device.Kind.CUDA;
        List<BandwidthCase> cases =
                cuda
                        ? Arrays.stream(BandwidthCase.values())
                                .filter(c -> !c.isNvme() && !c.isLatency())
                                .toList()
                        // The other cases are the same on the host.
                        : List.of(BandwidthCase.LOCAL, BandwidthCase.HOST_TO_DEVICE_ENGINE);
        List<ProbeResult.Copy> rows = new ArrayList<>();
        int rest = cases.size();
        for (BandwidthCase c : cases) {
            progress.accept("copies, " + c.label());
            rows.addAll(measure(c, bytes, budget.share(rest--)));
        }
        return rows;
    }

    /**
     * Measures a case.
     *
     * @return one row per pair; if there are no pairs, a row with the reason
     */
    List<ProbeResult.Copy> measure(BandwidthCase c, long bytes, double share) {
        int copies = Math.clamp(SAMPLE_BYTES / bytes, 1, MOST_COPIES);
        BandwidthRun run = new BandwidthRun(devices, bytes, SAMPLES, copies, null);
        List<double[][]> rounds = new ArrayList<>();
        Budget budget = new Budget(share);
        try {
            double each;
            do {
                double before = budget.left();
                rounds.add(run.measure(c));
                each = before - budget.left();
            } while (rounds.size() < MOST_ROUNDS && each < budget.left());
        } catch (BandwidthRun.WrongDataException e) {
            return List.of(
                    row(c, 0, 0, bytes, Outcome.wrong(String.valueOf(e.getMessage())), null));
        } catch (JcclException e) {
            return List.of(row(c, 0, 0, bytes, Outcome.failed(e), null));
        }
        double[][] matrix = rounds.getFirst();
        if (matrix.length == 0) {
            return List.of(row(c, 0, 0, bytes, Outcome.lacking("needs two GPUs"), null));
        }
        List<ProbeResult.Copy> rows = new ArrayList<>();
        for (int i = 0; i < matrix.length; i++) {
            for (int j = 0; j < matrix[i].length; j++) {
                if (!Double.isNaN(matrix[i][j])) {
                    rows.add(row(c, i, j, bytes, rounds, copies));
                }
            }
        }
        return rows;
    }

    private ProbeResult.Copy row(
            BandwidthCase c, int i, int j, long bytes, List<double[][]> rounds, int copies) {
        double[] values = rounds.stream().mapToDouble(m -> m[i][j]).toArray();
        // Microseconds, or GB/s.
        double[] seconds =
                Arrays.stream(values).map(v -> c.isLatency() ? v / 1e6 : bytes / 1e9 / v).toArray();
        Timing timing = Timing.of(seconds, copies * SAMPLES, true);
        Double rate = c.isLatency() ? null : Double.valueOf(bytes / 1e9 / timing.medianSeconds());
        return row(c, i, j, bytes, Outcome.measured(timing), rate);
    }

    private ProbeResult.Copy row(
            BandwidthCase c, int i, int j, long bytes, Outcome outcome, @Nullable Double rate) {
        String row = c.isPeer() ? name(i) : "host";
        boolean back =
                c.label().startsWith("device_to_host")
                        || (c.isPeer() && c.label().contains("_read"));
        String from = c == BandwidthCase.LOCAL || back ? name(j) : row;
        return new ProbeResult.Copy(c.label(), from, back ? row : name(j), bytes, outcome, rate);
    }

    private String name(int index) {
        return name(devices.get(index));
    }

    /** The device's name, as in the option that selects it. */
    static String name(Device device) {
        return device.kind() == Device.Kind.HOST ? "host" : "cuda:" + device.index();
    }
}

package io.jccl.bench;

import io.jccl.topology.CpuList;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;

/**
 * CPU utilization according to the kernel.
 *
 * <p><b>Threads:</b> one.
 */
final class MachineLoad {
    /** Linux reports CPU time in hundredths of a second, whatever its internal resolution. */
    private static final double TICKS = 100;

    /**
     * CPU time since the machine started, over some CPUs.
     *
     * @param busy seconds spent running programs
     * @param stolen seconds taken by the hypervisor
     * @param all total seconds
     */
    record Use(double busy, double stolen, double all) {
        Use minus(Use before) {
            return new Use(busy - before.busy, stolen - before.stolen, all - before.all);
        }
    }

    private final Path proc;

    MachineLoad(Path proc) {
        this.proc = proc;
    }

    /**
     * CPUs in the kernel's notation.
     *
     * @param list such as {@code 0-3,8}
     * @return their numbers; none if it is empty or not a list
     */
    static BitSet cpus(String list) {
        try {
            return CpuList.parse(list);
        } catch (NumberFormatException e) {
            return new BitSet();
        }
    }

    /**
     * Reads the use of CPUs.
     *
     * @param cpus their numbers; none means all
     * @return the sum over them; all zero if the kernel does not report it
     */
    Use use(BitSet cpus) {
        double busy = 0;
        double stolen = 0;
        double all = 0;
        for (String line : lines("stat")) {
            String[] f = line.split(" +", -1);
            if (!f[0].matches("cpu\\d+") || f.length < 9) {
                continue;
            }
            if (cpus.isEmpty() || cpus.get(Integer.parseInt(f[0].substring(3)))) {
                double sum = 0;
                // User time has guests' in it, which follow as the ninth and tenth field.
                for (int i = 1; i <= 8; i++) {
                    sum += Double.parseDouble(f[i]);
                }
                double idle = Double.parseDouble(f[4]) + Double.parseDouble(f[5]);
                double steal = Double.parseDouble(f[8]);
                all += sum / TICKS;
                stolen += steal / TICKS;
                busy += (sum - idle - steal) / TICKS;
            }
        }
        return new Use(busy, stolen, all);
    }

    /**
     * The load average of the last minute.
     *
     * @return the load, or -1 if the kernel does not report it
     */
    double average() {
        List<String> lines = lines("loadavg");
        return lines.isEmpty() ? -1 : Double.parseDouble(lines.getFirst().split(" ", 2)[0]);
    }

    private List<String> lines(String file) {
        try {
            return Files.readAllLines(proc.resolve(file));
        } catch (IOException e) {
            return List.of();
        }
    }
}

package io.jccl.cli.doctor;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.LoadedLibrary;
import io.jccl.bindings.NativeLibrary;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A machine's components, for reports that other programs read. A value that cannot be read is
 * null.
 *
 * @param cpu model of the processor
 * @param sockets processors
 * @param cores physical cores
 * @param threads logical CPUs that are online
 * @param availableCpus CPUs that this JVM may use
 * @param affinity the same as the kernel's list, such as {@code 0-3}
 * @param virtualMachine whether a hypervisor runs it
 * @param numaNodes NUMA nodes
 * @param caches of one CPU, the nearest first
 * @param memoryBytes main memory
 * @param availableMemoryBytes memory that could be allocated, within the control groups' limits
 * @param kernel release of the kernel
 * @param java version of this JVM
 * @param vectorApi whether the Vector API's module is resolved
 * @param libraries versions of those of CUDA runtime, cuBLAS and NCCL that can be loaded
 */
public record Hardware(
        @Nullable String cpu,
        @Nullable Integer sockets,
        @Nullable Integer cores,
        @Nullable Integer threads,
        int availableCpus,
        @Nullable String affinity,
        @Nullable Boolean virtualMachine,
        @Nullable Integer numaNodes,
        List<Cache> caches,
        @Nullable Long memoryBytes,
        @Nullable Long availableMemoryBytes,
        @Nullable String kernel,
        String java,
        boolean vectorApi,
        Map<String, String> libraries) {
    private static final String CACHES = "/sys/devices/system/cpu/cpu0/cache";
    private static final Pattern SIZE = Pattern.compile("(\\d+)([KMG]?)");

    /**
     * A cache.
     *
     * @param level 1 is nearest to the core
     * @param type data, instruction or unified
     * @param bytes its size
     * @param cpus the CPUs that share it, in the kernel's notation
     */
    public record Cache(int level, String type, long bytes, @Nullable String cpus) {
        /** Whether it caches data. */
        public boolean holdsData() {
            return !type.equals("instruction");
        }
    }

    /**
     * Examines a machine.
     *
     * @param machine what to examine
     * @param libraries whether native libraries are loaded for their versions
     * @return what is known; nothing is thrown
     */
    public static Hardware of(Machine machine, boolean libraries) {
        MachineFiles files = machine.files();
        Cgroups cgroups = new Cgroups(files);
        Facts.Cpu cpu = CpuProbe.examine(machine, cgroups);
        Facts.Memory memory = MemoryProbe.examine(machine, cgroups);
        Long limit = value(memory.limitBytes());
        Long available = value(memory.availableBytes());
        return new Hardware(
                value(cpu.model()),
                value(cpu.sockets()),
                value(cpu.cores()),
                value(cpu.threads()),
                cpu.availableToJava(),
                value(cpu.affinity()),
                value(cpu.virtualMachine()),
                value(cpu.numaNodes().map(List::size)),
                caches(files),
                value(memory.totalBytes()),
                available == null || limit == null || limit < 0
                        ? available
                        : Long.valueOf(Math.min(available, limit)),
                value(SystemProbe.os(machine).kernel()),
                machine.java().version(),
                machine.java().vectorApi(),
                libraries ? versions(machine) : Map.of());
    }

    private static <T> @Nullable T value(Reading<T> reading) {
        return reading instanceof Reading.Known<T>(T value) ? value : null;
    }

    private static List<Cache> caches(MachineFiles files) {
        List<Cache> all = new ArrayList<>();
        for (String name : files.names(CACHES, "index\\d+")) {
            String folder = CACHES + "/" + name + "/";
            Long level = value(files.number(folder + "level"));
            Long bytes = value(files.text(folder + "size").map(Hardware::bytes));
            if (level != null && bytes != null) {
                all.add(
                        new Cache(
                                level.intValue(),
                                files.text(folder + "type")
                                        .orElse("unified")
                                        .toLowerCase(Locale.ROOT),
                                bytes,
                                value(files.text(folder + "shared_cpu_list"))));
            }
        }
        return List.copyOf(all);
    }

    private static long bytes(String text) {
        Matcher m = SIZE.matcher(text);
        if (!m.matches()) {
            throw new IllegalArgumentException(text);
        }
        int unit = m.group(2).isEmpty() ? 0 : 1 + "KMG".indexOf(m.group(2));
        return Long.parseLong(m.group(1)) << (10 * unit);
    }

    private static Map<String, String> versions(Machine machine) {
        Map<String, String> all = new TreeMap<>();
        for (NativeLibrary library :
                List.of(NativeLibrary.CUDART, NativeLibrary.CUBLAS, NativeLibrary.NCCL)) {
            Reading<Discovery> found =
                    Bounded.call(
                            "loading " + library.title(),
                            machine.patience(),
                            () -> machine.libraries().discover(library));
            if (found
                    instanceof
                    Reading.Known<Discovery>(Discovery.Found(LoadedLibrary l, var tried))) {
                all.put(LibraryProbe.name(library), l.version().toString());
            }
        }
        return all;
    }
}

package io.jccl.cli.doctor;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.Version;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * All that is known about a machine. Component names are the field names of the JSON report.
 *
 * <p>A limit of -1 means no limit.
 */
record Facts(
        HostEngine hostEngine,
        Os os,
        Java java,
        Cpu cpu,
        Memory memory,
        Driver driver,
        List<Gpu> gpus,
        Network network,
        List<Library> libraries,
        Configuration configuration,
        Container container) {

    /** The outcome of one attempt. */
    record Step(boolean works, String detail) {}

    /**
     * Whether the host engine works.
     *
     * @param works whether both steps work
     * @param threads a small job with ranks as threads
     * @param processes shared memory, which ranks in separate processes use
     * @param folder the folder of that memory
     * @param space its file system
     */
    record HostEngine(
            boolean works,
            Step threads,
            Step processes,
            Reading<String> folder,
            Reading<Space> space) {}

    /** A file system. */
    record Space(long totalBytes, long freeBytes, String type) {}

    record Os(
            String name,
            Reading<String> kernel,
            String architecture,
            Reading<String> distribution,
            Reading<String> libc) {}

    /**
     * The JVM.
     *
     * @param nativeAccess whether the bindings may call native code
     * @param vectorApi whether the JDK has the Vector API's module
     */
    record Java(
            String version,
            String vendor,
            String vm,
            String home,
            boolean nativeAccess,
            boolean vectorApi) {}

    /**
     * The processors.
     *
     * @param availableToJava processors as counted by the JVM, after all limits
     * @param affinity the CPUs that this process may use
     * @param limit processor time that its control groups grant, in CPUs
     * @param virtualMachine whether the CPU reports a hypervisor
     */
    record Cpu(
            Reading<String> model,
            Reading<Integer> sockets,
            Reading<Integer> cores,
            Reading<Integer> threads,
            int availableToJava,
            Reading<String> affinity,
            Reading<Double> limit,
            Reading<Boolean> virtualMachine,
            Reading<List<NumaNode>> numaNodes,
            Reading<Boolean> numaBalancing,
            Reading<String> transparentHugePages,
            Reading<String> sharedMemoryHugePages) {
        int nodes() {
            return numaNodes.orElse(List.of()).size();
        }
    }

    record NumaNode(
            int node, Reading<String> cpus, Reading<Long> totalBytes, Reading<Long> freeBytes) {}

    /**
     * Memory and limits.
     *
     * @param limitBytes what the control groups grant
     * @param devShm the file system that NCCL uses, which need not be that of the host engine's
     *     folder
     */
    record Memory(
            Reading<Long> totalBytes,
            Reading<Long> availableBytes,
            Reading<Long> limitBytes,
            Reading<Space> devShm,
            Reading<Limit> memlockBytes,
            Reading<Limit> openFiles,
            Reading<Limit> stackBytes) {}

    record Limit(long soft, long hard) {}

    /**
     * NVIDIA's driver: its kernel module and its user-mode library.
     *
     * @param version version of the kernel module
     * @param openModule whether the kernel module is the open-source one
     * @param cuda what CUDA reports
     * @param libcuda the file of the user-mode library
     * @param libcudaVersion its version, from its file name
     * @param deviceNodes the existing {@code /dev/nvidia*}
     * @param peerMemory whether the module is loaded that gives network cards access to GPU memory
     * @param wsl whether Windows drives the GPUs
     */
    record Driver(
            Reading<String> version,
            boolean openModule,
            Reading<Cuda> cuda,
            Reading<String> libcuda,
            Reading<String> libcudaVersion,
            List<DeviceNode> deviceNodes,
            boolean peerMemory,
            boolean wsl) {
        /** The number of GPUs that CUDA can use. */
        int usableGpus() {
            return cuda.map(c -> c.devices().size()).orElse(0);
        }
    }

    record DeviceNode(String path, boolean readable, boolean writable) {}

    /** What CUDA reports: the newest version that its driver supports, and its devices. */
    record Cuda(Version driverVersion, List<CudaDevice> devices) {}

    record CudaDevice(int index, String name, String pci) {}

    /**
     * A GPU on the PCI bus, usable or not.
     *
     * @param pci its address
     * @param device vendor and device number
     * @param numaNode -1 if the firmware does not report it
     * @param driver the driver bound to it, or {@code none}
     * @param iommu how its memory accesses are translated, or {@code none}
     * @param redirecting bridges above it that redirect peer-to-peer traffic to the processor
     */
    record Gpu(
            String pci,
            Reading<String> device,
            Reading<String> model,
            Reading<String> uuid,
            Reading<Integer> numaNode,
            Reading<Link> link,
            Reading<String> driver,
            Reading<String> iommuGroup,
            Reading<String> iommu,
            Reading<List<String>> redirecting) {}

    record Link(String speed, int width, String maxSpeed, int maxWidth) {}

    /**
     * InfiniBand and RoCE.
     *
     * @param verbs device files for user programs
     */
    record Network(List<Nic> devices, List<String> verbs) {}

    record Nic(String name, Reading<String> pci, Reading<Integer> numaNode, List<Port> ports) {}

    record Port(
            String number,
            Reading<String> linkLayer,
            Reading<String> state,
            Reading<String> rate) {}

    /**
     * A native library.
     *
     * @param reason why it is missing
     * @param attempts the locations that were searched
     * @param otherCopies further files of it, which were not loaded
     */
    record Library(
            String name,
            String title,
            boolean found,
            @Nullable String version,
            @Nullable String path,
            @Nullable String how,
            @Nullable String reason,
            List<Discovery.Attempt> attempts,
            Reading<List<Libraries.Copy>> otherCopies) {}

    /**
     * Settings from the environment.
     *
     * @param files NCCL's, in the order in which it reads them
     * @param variables of the environment
     * @param properties of this JVM
     */
    record Configuration(
            List<ConfigFile> files, List<Variable> variables, List<Variable> properties) {}

    /**
     * A configuration file of NCCL.
     *
     * @param origin why NCCL reads it
     * @param state {@code read}, {@code absent}, or why it cannot be read
     */
    record ConfigFile(String path, String origin, String state, List<Setting> settings) {
        static final String READ = "read";
        static final String ABSENT = "absent";
    }

    /**
     * A line of a configuration file.
     *
     * @param overriddenBy the earlier setting that counts instead
     */
    record Setting(String name, String value, @Nullable String overriddenBy) {}

    record Variable(String name, String value) {}

    /**
     * What a container restricts.
     *
     * @param signs the evidence that this is a container
     * @param cgroups which hierarchy holds the memory controller
     * @param seccomp whether system calls are filtered
     * @param sysNice whether the process may set memory policies that Docker's filter forbids
     * @param ptraceScope which processes may trace others
     * @param removeIpc whether logging out deletes the user's shared memory
     */
    record Container(
            boolean detected,
            List<String> signs,
            Reading<String> cgroups,
            Reading<String> seccomp,
            Reading<Boolean> sysNice,
            Reading<Long> ptraceScope,
            Reading<String> removeIpc) {}

    boolean manyGpus() {
        return gpus.size() > 1;
    }

    boolean hasNvidia() {
        return !gpus.isEmpty() || driver.version().known();
    }

    Library library(String name) {
        return libraries.stream().filter(l -> l.name.equals(name)).findFirst().orElseThrow();
    }
}

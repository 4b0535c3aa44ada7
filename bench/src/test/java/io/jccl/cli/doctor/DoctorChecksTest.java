package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.NativeLibrary;
import io.jccl.cli.doctor.Facts.HostEngine;
import io.jccl.cli.doctor.Facts.Space;
import io.jccl.cli.doctor.Facts.Step;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class DoctorChecksTest {
    private static final long MIB = 1 << 20;

    @TempDir private Path root;

    private FakeMachine machine() {
        return new FakeMachine(root);
    }

    private static Problem problem(FakeMachine machine, String id) {
        List<Problem> all = machine.report().problems();
        return all.stream()
                .filter(p -> p.id().equals(id))
                .findFirst()
                .orElseThrow(() -> new AssertionError("no " + id + " among " + all));
    }

    private static void assertSays(Problem problem, String found, String action) {
        assertTrue(problem.found().contains(found), problem::toString);
        assertTrue(problem.action().contains(action), problem::toString);
    }

    @Test
    void healthyMachinesHaveNoProblems() {
        assertEquals(List.of(), machine().healthy().report().problems());
        assertEquals(List.of(), machine().eightGpus().report().problems());
    }

    @Test
    void whatIsUnknownIsNoProblem() {
        assertEquals(List.of(), machine().report().problems());
    }

    @Test
    void aBrokenHostEngineIsAnErrorAndComesFirst() {
        Report report = machine().jvm(false, false).brokenHostEngine().report();
        Problem first = report.problems().getFirst();
        assertEquals(Severity.ERROR, first.severity());
        assertEquals("host-engine-processes", first.id());
        assertSays(first, "No space left on device", "JCCL_SHM_DIR");
        assertEquals(Report.HOST_ENGINE, report.status());
    }

    @Test
    void sharedMemoryOnDiskIsSlow() {
        Step ran = new Step(true, "ran");
        FakeMachine m =
                machine()
                        .hostEngine(
                                new HostEngine(
                                        true,
                                        ran,
                                        ran,
                                        Reading.known("/tmp"),
                                        Reading.known(new Space(1 << 30, 1 << 30, "ext4"))));
        assertSays(problem(m, "shm-on-disk"), "/tmp, which is not in memory (ext4)", "tmpfs");
    }

    @Test
    void flagsOfTheJvm() {
        FakeMachine m = machine().healthy().jvm(false, false);
        assertEquals(List.of("native-access", "vector-api"), m.problems());
        assertSays(
                problem(m, "native-access"),
                "io.jccl.bindings",
                "--enable-native-access=io.jccl.bindings");
        assertSays(problem(m, "vector-api"), "Vector API", "--add-modules jdk.incubator.vector");
    }

    @Test
    void aGpuWithoutADriver() {
        FakeMachine m = machine().healthy().gpu("07", 0, "");
        assertEquals(List.of("no-driver"), m.problems());
        assertSays(problem(m, "no-driver"), "1 NVIDIA GPU on the PCI bus", "install");
    }

    @ParameterizedTest
    @CsvSource({"nouveau, blacklist nouveau", "vfio-pci, virtual machines"})
    void aGpuBoundToSomethingElse(String driver, String action) {
        FakeMachine m = machine().gpu("07", 0, driver).gpu("0a", 0, driver);
        assertSays(problem(m, "no-driver"), "2 NVIDIA GPUs", action);
        assertSays(problem(m, "no-driver"), "bound to: " + driver, action);
    }

    @Test
    void aContainerWithLittleSharedAndLockedMemory() {
        FakeMachine m =
                machine()
                        .eightGpus()
                        .file("/.dockerenv", "")
                        .shm(64 * MIB, 64 * MIB)
                        .limits("65536", "1048576", "8388608");
        assertEquals(List.of("shm-small", "memlock"), m.problems());
        assertSays(problem(m, "shm-small"), "/dev/shm has 64.0 MiB", "--shm-size=1g");
        assertSays(problem(m, "memlock"), "limited to 64.0 KiB", "--ulimit memlock=-1");
    }

    @Test
    void theSameOutsideAContainerHasAnotherRemedy() {
        FakeMachine m =
                machine().eightGpus().shm(64 * MIB, 64 * MIB).limits("65536", "1024", "unlimited");
        assertEquals(
                List.of("shm-small", "memlock", "open-files", "stack-unlimited"), m.problems());
        assertSays(problem(m, "shm-small"), "64.0 MiB", "mount -o remount");
        assertSays(problem(m, "memlock"), "64.0 KiB", "limits.d");
        assertSays(problem(m, "open-files"), "only 1024 files", "ulimit -n");
    }

    @Test
    void sharedMemoryThatIsUsedUp() {
        FakeMachine m = machine().healthy().shm(4096 * MIB, 3 * MIB);
        assertSays(problem(m, "shm-full"), "3.0 MiB left", "delete");
    }

    @Test
    void sharedMemoryCountsAgainstTheControlGroup() {
        FakeMachine m =
                machine()
                        .healthy()
                        .file("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n")
                        .shm(4096 * MIB, 4000 * MIB);
        assertSays(problem(m, "shm-over-limit"), "grow to 4.0 GiB", "killed");
        assertSays(problem(m, "shm-over-limit"), "control group's 1.0 GiB", "killed");
    }

    @Test
    void lessCpuTimeThanCpus() {
        FakeMachine m =
                machine().healthy().file("/sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
        assertSays(problem(m, "cpu-limit"), "2.5 CPUs' time on 8 CPUs", "--cpus");
        assertSays(problem(machine().processors(1), "one-cpu"), "one CPU", "more CPUs");
    }

    @Test
    void gpusThatWereNotPassedIn() {
        FakeMachine m =
                machine()
                        .healthy()
                        .file("/run/.containerenv", "")
                        .gpu("07", 0, "nvidia")
                        .file(
                                "/proc/driver/nvidia/version",
                                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n")
                        .limits("unlimited", "1048576", "8388608");
        assertEquals(
                List.of("no-device-nodes", "no-libcuda", "no-nccl", "no-cudart"), m.problems());
        assertSays(problem(m, "no-device-nodes"), "no /dev/nvidia0", "--gpus all");
        assertSays(problem(m, "no-libcuda"), "no libcuda.so.1", "NVIDIA_DRIVER_CAPABILITIES");
    }

    @Test
    void aDriverThatWasUpdatedWithoutAReboot() {
        FakeMachine m =
                machine()
                        .eightGpus()
                        .file(
                                "/proc/driver/nvidia/version",
                                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.10.01  Sat\n");
        assertSays(
                problem(m, "driver-mismatch"),
                "libcuda is 580.65.06, but the loaded driver is 570.10.01",
                "reboot");
        // The card's traffic with GPU memory needs a module with this driver.
        assertSays(problem(m, "no-peer-memory"), "nvidia_peermem", "modprobe");
    }

    @Test
    void cudaThatFindsNothing() {
        FakeMachine m = machine().eightGpus().cuda(() -> Reading.unknown("initialization error"));
        assertSays(
                problem(m, "cuda-fails"), "8 GPUs, but CUDA finds none: initialization", "dmesg");
        m.variable("CUDA_VISIBLE_DEVICES", "");
        assertSays(problem(m, "cuda-visible-devices"), "hides all GPUs", "unset");
    }

    @Test
    void librariesThatAreTooNewForTheDriver() {
        FakeMachine m = machine().eightGpus().cuda("12.4", 8);
        assertSays(
                problem(m, "driver-old"),
                "the CUDA runtime 13.0 is too new for the driver, which serves CUDA 12.4",
                "update the driver");
    }

    @Test
    void trafficBetweenGpusThroughTheProcessor() {
        FakeMachine m = machine().eightGpus();
        String device = "/sys/devices/pci0000:00/0000:00:71.0/0000:07:00.0";
        m.file("/sys/kernel/iommu_groups/12/type", "DMA-FQ\n")
                .link(device + "/iommu_group", "/sys/kernel/iommu_groups/12");
        assertEquals(List.of("iommu"), m.problems());
        assertSays(problem(m, "iommu"), "0000:07:00.0", "iommu=pt");
        assertSays(problem(m, "iommu"), "0000:07:00.0", "on ARM with iommu.passthrough=1");
        m.file("/sys/kernel/iommu_groups/12/type", "identity\n");
        assertEquals(List.of(), m.problems());
    }

    @Test
    void virtualMachinesNeedTheirIommu() {
        FakeMachine m = machine().eightGpus();
        String device = "/sys/devices/pci0000:00/0000:00:71.0/0000:07:00.0";
        m.file("/sys/kernel/iommu_groups/12/type", "DMA\n")
                .link(device + "/iommu_group", "/sys/kernel/iommu_groups/12")
                .file("/proc/cpuinfo", "processor: 0\nmodel name: A CPU\nflags: hypervisor\n");
        assertEquals(List.of(), m.problems());
    }

    @Test
    void lanesThatAreMissing() {
        FakeMachine m = machine().eightGpus();
        m.file("/sys/devices/pci0000:00/0000:00:71.0/0000:07:00.0/current_link_width", "8\n");
        assertSays(problem(m, "link-narrow"), "0000:07:00.0 x8 of x16", "reseat");
    }

    @Test
    void numaOfGpus() {
        FakeMachine m = machine().eightGpus().file("/proc/sys/kernel/numa_balancing", "1\n");
        assertSays(problem(m, "numa-balancing"), "2 NUMA nodes", "numa_balancing=0");
        m.file("/sys/devices/pci0000:00/0000:00:71.0/0000:07:00.0/numa_node", "-1\n");
        assertSays(problem(m, "gpu-numa-unknown"), "NUMA node", "NCCL_TOPO_FILE");
    }

    @Test
    void aNetworkCardThatCannotBeUsed() {
        FakeMachine m =
                machine()
                        .healthy()
                        .limits("unlimited", "1048576", "8388608")
                        .file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        assertEquals(List.of("no-verbs", "port-down"), m.problems());
        assertSays(problem(m, "port-down"), "mlx5_0/1 DOWN", "NCCL_IB_HCA");
        assertSays(problem(m, "no-verbs"), "mlx5_0", "modprobe");
        m.file("/.dockerenv", "");
        assertSays(problem(m, "no-verbs"), "mlx5_0", "--device=/dev/infiniband");
    }

    @Test
    void twoVersionsOfNccl() {
        FakeMachine m =
                machine()
                        .eightGpus()
                        .copies(
                                NativeLibrary.NCCL,
                                new Libraries.Copy("/wheel/libnccl.so.2", null));
        assertSays(
                problem(m, "several-nccl"), "unknown version in /wheel/libnccl.so.2", "NCCL_HOME");
        m.copies(NativeLibrary.NCCL, new Libraries.Copy("/other/libnccl.so.2.30.7", "2.30.7"));
        assertEquals(List.of(), m.problems());
    }

    @Test
    void aSettingThatLeadsNowhere() {
        FakeMachine m =
                machine()
                        .healthy()
                        .missing(
                                NativeLibrary.NCCL,
                                "NCCL_HOME is '/gone', where there is no libnccl.so.2",
                                new Discovery.Attempt(
                                        "environment variable NCCL_HOME",
                                        "/gone",
                                        "no such folder"));
        assertSays(problem(m, "library-setting"), "/gone", "unset it");
    }

    @Test
    void forgottenSettings() {
        FakeMachine m =
                machine()
                        .healthy()
                        .variable("NCCL_P2P_DISABLE", "1")
                        .variable("NCCL_COMM_ID", "10.0.0.1:5000")
                        .file("/etc/nccl.conf", "NCCL_IB_DISABLE=1\nNCCL_ALGO =Ring\n");
        assertEquals(
                List.of("nccl-conf-names", "slow-setting", "nccl-conf", "nccl-comm-id"),
                m.problems());
        assertSays(problem(m, "slow-setting"), "NCCL_P2P_DISABLE=1", "unset");
        assertSays(problem(m, "slow-setting"), "NCCL_IB_DISABLE=1", "unset");
        assertSays(problem(m, "nccl-conf"), "/etc/nccl.conf (NCCL_IB_DISABLE=1", "forgotten");
        assertSays(problem(m, "nccl-conf-names"), "NCCL_ALGO", "without blanks");
        m.variable("NCCL_CONF_FILE", "/gone");
        assertSays(problem(m, "nccl-conf-unreadable"), "/gone", "NCCL_CONF_FILE");
    }

    @Test
    void loggingOutDeletesSharedMemory() {
        FakeMachine m = machine().eightGpus().file("/etc/systemd/logind.conf", "[Login]\n");
        assertSays(problem(m, "remove-ipc"), "not set", "RemoveIPC=no");
    }

    @Test
    void memoryPoliciesInDocker() {
        FakeMachine m =
                machine()
                        .eightGpus()
                        .file("/.dockerenv", "")
                        .file(
                                "/proc/self/status",
                                "CapEff: 00000000a80425fb\nSeccomp: 2\nCpus_allowed_list: 0-15\n");
        assertEquals(List.of("numa-policy"), m.problems());
        assertSays(problem(m, "numa-policy"), "CAP_SYS_NICE", "--cap-add SYS_NICE");
    }

    @ParameterizedTest
    @ValueSource(strings = {"nccl", "cuda", "cublas", "mpi"})
    void requirementsThatAreMet(String name) {
        Report report = machine().eightGpus().report(Requirement.of(name));
        assertEquals(Report.OK, report.status());
        assertTrue(report.required().getFirst().usable());
        assertEquals(name, report.required().getFirst().name());
    }

    @Test
    void ncclNeedsItsLibraryAndAGpu() {
        FakeMachine m = machine().eightGpus().cuda("13.0", 0);
        Report noGpu = m.report(Requirement.NCCL);
        assertEquals(Report.REQUIRED, noGpu.status());
        assertEquals("the CUDA driver reports no GPU", noGpu.required().getFirst().reason());
        assertEquals(Severity.ERROR, noGpu.problems().getFirst().severity());
        assertEquals("required-nccl", noGpu.problems().getFirst().id());

        m.cuda("13.0", 8).missing(NativeLibrary.NCCL, "no libnccl.so.2");
        Report noLibrary = m.report(Requirement.NCCL);
        assertEquals(Report.REQUIRED, noLibrary.status());
        assertEquals(
                "NCCL is not usable: no libnccl.so.2", noLibrary.required().getFirst().reason());

        m.cuda(() -> Reading.unknown("no driver"));
        assertEquals(
                "NCCL is not usable: no libnccl.so.2; the CUDA driver reports no GPU: no driver",
                m.report(Requirement.NCCL).required().getFirst().reason());
    }

    @Test
    void mpiNeedsNoGpu() {
        FakeMachine m = machine().found(NativeLibrary.MPI, "4.1.4", "/usr/lib/libmpi.so.40");
        assertEquals(Report.OK, m.report(Requirement.MPI).status());
        assertEquals(Report.REQUIRED, m.report(Requirement.MPI, Requirement.CUDA).status());
        // The host engine comes first.
        m.brokenHostEngine();
        assertEquals(Report.HOST_ENGINE, m.report(Requirement.CUDA).status());
    }
}

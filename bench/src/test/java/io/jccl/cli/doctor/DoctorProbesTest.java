package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.NativeLibrary;
import io.jccl.cli.doctor.Facts.ConfigFile;
import io.jccl.cli.doctor.Facts.Gpu;
import io.jccl.cli.doctor.Facts.Library;
import io.jccl.cli.doctor.Facts.Link;
import io.jccl.cli.doctor.Facts.Nic;
import io.jccl.cli.doctor.Facts.Setting;
import io.jccl.cli.doctor.Facts.Variable;
import io.jccl.topology.CpuList;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 60, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DoctorProbesTest {
    @TempDir private Path root;

    private FakeMachine machine() {
        return new FakeMachine(root);
    }

    private static void assertUnknown(String reason, Reading<?> reading) {
        String said = assertInstanceOf(Reading.Unknown.class, reading).reason();
        assertTrue(said.contains(reason), said);
    }

    @Test
    void readsAPlainMachine() {
        Facts f = machine().healthy().facts();
        assertEquals(Reading.known("6.8.0-50-generic"), f.os().kernel());
        assertEquals(Reading.known("Ubuntu 24.04.1 LTS"), f.os().distribution());
        assertEquals(Reading.known("glibc 2.39"), f.os().libc());
        assertEquals(Reading.known("A CPU"), f.cpu().model());
        assertEquals(Reading.known(1), f.cpu().sockets());
        assertEquals(Reading.known(4), f.cpu().cores());
        assertEquals(Reading.known(8), f.cpu().threads());
        assertEquals(Reading.known("0-7"), f.cpu().affinity());
        assertEquals(Reading.known(false), f.cpu().virtualMachine());
        assertEquals(Reading.known(65536000L * 1024), f.memory().totalBytes());
        assertEquals(Reading.known(60000000L * 1024), f.memory().availableBytes());
        assertEquals(Reading.known(new Facts.Limit(8388608, -1)), f.memory().stackBytes());
        assertEquals(Reading.known(new Facts.Limit(1048576, 1048576)), f.memory().openFiles());
        assertEquals(Reading.known(-1L), f.memory().limitBytes());
        assertEquals(Reading.known(-1.0), f.cpu().limit());
        assertFalse(f.container().detected());
    }

    @Test
    void readsTwoSockets() {
        Facts.Cpu cpu =
                machine()
                        .cpus(2, 4, 2)
                        .file("/sys/devices/system/node/online", "0-1\n")
                        .facts()
                        .cpu();
        assertEquals(Reading.known(2), cpu.sockets());
        assertEquals(Reading.known(8), cpu.cores());
        assertEquals(Reading.known(16), cpu.threads());
        List<Facts.NumaNode> nodes = cpu.numaNodes().orElse(List.of());
        assertEquals(2, nodes.size());
        assertEquals(1, nodes.get(1).node());
        assertEquals(Reading.known("4-7"), nodes.get(1).cpus());
        assertEquals(Reading.known(1L << 30), nodes.get(1).totalBytes());
        assertEquals(Reading.known(1L << 29), nodes.get(1).freeBytes());
    }

    @Test
    void namesAnArmProcessorByItsNumbers() {
        Facts.Cpu cpu =
                machine()
                        .file(
                                "/proc/cpuinfo",
                                "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
                        .facts()
                        .cpu();
        assertEquals(Reading.known("ARM implementer 0x41 part 0xd4f"), cpu.model());
        assertEquals(Reading.known(1), cpu.threads());
    }

    @Test
    void listsNumbersInTheirOrder() {
        FakeMachine m = machine();
        for (int i : new int[] {10, 2, 0, 1}) {
            m.folder("/sys/devices/system/node/node" + i);
        }
        assertEquals(
                List.of(0, 1, 2, 10),
                m.facts().cpu().numaNodes().orElse(List.of()).stream()
                        .map(Facts.NumaNode::node)
                        .toList());
    }

    @ParameterizedTest
    @ValueSource(strings = {"3-1", "a", "1,,2", "0-4000000000", "-1", "0-99999999"})
    void refusesOtherCpuLists(String list) {
        assertUnknown("makes no sense", Reading.known(list).map(CpuList::parse));
    }

    @Test
    void readsLimitsOfCgroupsV2() {
        Facts f =
                machine()
                        .file("/proc/self/cgroup", "0::/jobs/one\n")
                        .file(
                                "/proc/self/mountinfo",
                                "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
                        .file("/sys/fs/cgroup/jobs/one/memory.max", "max\n")
                        .file("/sys/fs/cgroup/jobs/memory.max", "4294967296\n")
                        .file("/sys/fs/cgroup/jobs/one/cpu.max", "150000 100000\n")
                        .file("/sys/fs/cgroup/jobs/cpu.max", "max 100000\n")
                        .facts();
        assertEquals(Reading.known("v2"), f.container().cgroups());
        assertEquals(Reading.known(4294967296L), f.memory().limitBytes());
        assertEquals(Reading.known(1.5), f.cpu().limit());
    }

    @Test
    void readsLimitsOfCgroupsV1FromInsideAContainer() {
        // The mount shows the container's own group, whose path only the host knows.
        Facts f =
                machine()
                        .file(
                                "/proc/self/cgroup",
                                "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n")
                        .file(
                                "/proc/self/mountinfo",
                                "40 30 0:35 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup"
                                        + " rw,memory\n"
                                        + "41 30 0:36 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro -"
                                        + " cgroup cgroup rw,cpu,cpuacct\n")
                        .file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n")
                        .file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
                        .file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
                        .facts();
        assertEquals(Reading.known("v1"), f.container().cgroups());
        assertEquals(Reading.known(2147483648L), f.memory().limitBytes());
        assertEquals(Reading.known(2.0), f.cpu().limit());
        assertTrue(f.container().signs().isEmpty(), f.container().signs()::toString);
    }

    @Test
    void knowsTheAbsenceOfLimitsInCgroupsV1() {
        Facts f =
                machine()
                        .file("/proc/self/cgroup", "4:memory:/\n3:cpu:/\n")
                        .file(
                                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                "9223372036854771712\n")
                        .file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
                        .file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
                        .facts();
        assertEquals(Reading.known(-1L), f.memory().limitBytes());
        assertEquals(Reading.known(-1.0), f.cpu().limit());
    }

    @Test
    void readsEightGpus() {
        Facts f = machine().eightGpus().facts();
        assertEquals(Reading.known("580.65.06"), f.driver().version());
        assertTrue(f.driver().openModule());
        assertEquals(Reading.known("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), f.driver().libcuda());
        assertEquals(Reading.known("580.65.06"), f.driver().libcudaVersion());
        assertEquals(10, f.driver().deviceNodes().size());
        assertEquals(8, f.driver().usableGpus());
        assertEquals(8, f.gpus().size());
        Gpu g = f.gpus().get(6);
        assertEquals("0000:c0:00.0", g.pci());
        assertEquals(Reading.known("10de:2330"), g.device());
        assertEquals(Reading.known("NVIDIA H100 80GB HBM3"), g.model());
        assertEquals(Reading.known("GPU-6"), g.uuid());
        assertEquals(Reading.known(1), g.numaNode());
        assertEquals(Reading.known("nvidia"), g.driver());
        assertEquals(Reading.known("none"), g.iommu());
        assertEquals(Reading.known(new Link("32.0 GT/s PCIe", 16, "32.0 GT/s PCIe", 16)), g.link());
        Nic nic = f.network().devices().getFirst();
        assertEquals("mlx5_0", nic.name());
        assertEquals(Reading.known("0000:05:00.0"), nic.pci());
        assertEquals(Reading.known("ACTIVE"), nic.ports().getFirst().state());
        assertEquals(Reading.known("400 Gb/sec (4X NDR)"), nic.ports().getFirst().rate());
    }

    @Test
    void readsTheProprietaryDriversVersion() {
        FakeMachine m =
                machine()
                        .file(
                                "/proc/driver/nvidia/version",
                                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug"
                                        + " 19 01:15:15 UTC 2023\n");
        assertEquals(Reading.known("535.104.05"), m.facts().driver().version());
        assertFalse(m.facts().driver().openModule());
    }

    @Test
    void findsAGpuThatOnlyTheDriverLists() {
        FakeMachine m =
                machine()
                        .file(
                                "/proc/driver/nvidia/gpus/0000:3B:00.0/information",
                                "Model: \t Tesla T4\n");
        Gpu g = m.facts().gpus().getFirst();
        assertEquals("0000:3b:00.0", g.pci());
        assertEquals(Reading.known("Tesla T4"), g.model());
        assertUnknown("no /sys/bus/pci/devices/0000:3b:00.0", g.driver());
    }

    @Test
    void passesOverNvidiasOtherDevices() {
        machine()
                .file("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n")
                .file("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n")
                .file("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n")
                .file("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
        assertTrue(machine().facts().gpus().isEmpty());
    }

    private static byte[] bridge(int acsControl) {
        ByteBuffer config = ByteBuffer.allocate(4096).order(ByteOrder.LITTLE_ENDIAN);
        config.putInt(0x100, 0x148 << 20 | 1 << 16 | 0x0001);
        config.putInt(0x148, 1 << 16 | 0x000D);
        config.putShort(0x148 + 6, (short) acsControl);
        return config.array();
    }

    @Test
    void seesBridgesThatRedirectPeers() {
        String config = "/sys/devices/pci0000:00/0000:00:71.0/config";
        FakeMachine m = machine().gpu("07", 0, "nvidia").bytes(config, bridge(0x1D));
        assertEquals(
                Reading.known(List.of("0000:00:71.0")), m.facts().gpus().getFirst().redirecting());
        m.bytes(config, bridge(0x11));
        assertEquals(Reading.known(List.of()), m.facts().gpus().getFirst().redirecting());
        m.bytes(config, new byte[64]);
        assertUnknown("only root", m.facts().gpus().getFirst().redirecting());
    }

    @Test
    void pciCapabilitiesInACircleEnd() {
        byte[] config = new byte[4096];
        ByteBuffer b = ByteBuffer.wrap(config).order(ByteOrder.LITTLE_ENDIAN);
        b.putInt(0x100, 0x200 << 20 | 1);
        b.putInt(0x200, 0x100 << 20 | 2);
        assertEquals(Reading.known(false), PciConfig.redirectsPeers(config));
        b.putInt(0x200, 0xFFE << 20 | 2);
        assertEquals(Reading.known(false), PciConfig.redirectsPeers(config));
    }

    @Test
    void findsLibcudaAsTheLoaderDoes() {
        FakeMachine m = machine();
        assertUnknown("no libcuda.so.1", m.facts().driver().libcuda());
        m.file("/opt/driver/libcuda.so.1", "")
                .file("/etc/ld.so.cache", "glibc-ld\0libcuda.so.1\0/opt/driver/libcuda.so.1\0x\0");
        assertEquals(Reading.known("/opt/driver/libcuda.so.1"), m.facts().driver().libcuda());
        m.file("/mine/libcuda.so.1", "").variable("LD_LIBRARY_PATH", "relative:/none:/mine");
        assertEquals(Reading.known("/mine/libcuda.so.1"), m.facts().driver().libcuda());
        assertUnknown("no version", m.facts().driver().libcudaVersion());
    }

    @Test
    void fileThatWasRefusedIsNoOtherCopy() {
        FakeMachine m =
                machine()
                        .copies(
                                NativeLibrary.NCCL,
                                new Libraries.Copy("/broken/libnccl.so.2", null),
                                new Libraries.Copy("/wheel/libnccl.so.2", "2.30.4"))
                        .missing(
                                NativeLibrary.NCCL,
                                "it cannot be used",
                                new Discovery.Attempt(
                                        "NCCL_HOME", "/broken/libnccl.so.2", "no ELF header"));
        assertEquals(
                Reading.known(List.of(new Libraries.Copy("/wheel/libnccl.so.2", "2.30.4"))),
                m.facts().library("nccl").otherCopies());
    }

    @Test
    void tellsHowLibrariesWereFoundOrNot() {
        FakeMachine m =
                machine()
                        .found(NativeLibrary.NCCL, "2.28.3", "/usr/lib/libnccl.so.2.28.3")
                        .copies(
                                NativeLibrary.NCCL,
                                new Libraries.Copy("/usr/lib/libnccl.so.2.28.3", "2.28.3"),
                                new Libraries.Copy("/wheel/libnccl.so.2", "2.30.4"))
                        .missing(
                                NativeLibrary.CUDART,
                                "no libcudart here",
                                new Discovery.Attempt(
                                        "the OS loader", "libcudart.so.13", "absent"));
        Library nccl = m.facts().library("nccl");
        assertTrue(nccl.found());
        assertEquals("2.28.3", nccl.version());
        assertEquals("the OS loader", nccl.how());
        assertEquals(
                Reading.known(List.of(new Libraries.Copy("/wheel/libnccl.so.2", "2.30.4"))),
                nccl.otherCopies());
        Library cudart = m.facts().library("cudart");
        assertFalse(cudart.found());
        assertEquals("no libcudart here", cudart.reason());
        assertEquals(1, cudart.attempts().size());
        // The search itself may fail.
        assertEquals(
                "nobody looks for it (UnsupportedOperationException)",
                m.facts().library("mpi").reason());
    }

    @Test
    void aDriverThatHangsIsGivenUp() {
        CountDownLatch never = new CountDownLatch(1);
        Facts f =
                machine()
                        .patience(Duration.ofMillis(200))
                        .cuda(() -> {
                            try {
                                never.await();
                            } catch (InterruptedException e) {
                                Thread.currentThread().interrupt();
                            }
                            return Reading.unknown("woken");
                        })
                        .facts();
        assertUnknown("CUDA has not answered within 0.2 s", f.driver().cuda());
        never.countDown();
    }

    @Test
    void aDriverThatFailsIsQuoted() {
        Facts f =
                machine()
                        .cuda(() -> {
                            throw new NoClassDefFoundError("io/jccl/X");
                        })
                        .facts();
        assertUnknown("io/jccl/X (NoClassDefFoundError)", f.driver().cuda());
    }

    @Test
    void ncclsFilesAreReadAsNcclReadsThem() {
        Facts.Configuration c =
                machine()
                        .variable("NCCL_DEBUG", "WARN")
                        .file(
                                "/home/ada/.nccl.conf",
                                "# comment\nNCCL_DEBUG=INFO\nnothing\nNCCL_ALGO=Ring=x\n")
                        .file("/etc/nccl.conf", "NCCL_ALGO=Tree\nNCCL_NET_TOKEN=abc\n")
                        .facts()
                        .configuration();
        assertEquals(
                List.of(
                        new ConfigFile(
                                "/home/ada/.nccl.conf",
                                "the user's",
                                "read",
                                List.of(
                                        new Setting("NCCL_DEBUG", "INFO", "the environment"),
                                        new Setting("NCCL_ALGO", "Ring=x", null))),
                        new ConfigFile(
                                "/etc/nccl.conf",
                                "the machine's",
                                "read",
                                List.of(
                                        new Setting("NCCL_ALGO", "Tree", "/home/ada/.nccl.conf"),
                                        new Setting("NCCL_NET_TOKEN", "(hidden)", null)))),
                c.files());
    }

    @Test
    void aNamedFileReplacesTheUsers() {
        List<ConfigFile> files =
                machine()
                        .file("/home/ada/.nccl.conf", "NCCL_ALGO=Ring\n")
                        .variable("NCCL_CONF_FILE", "/opt/nccl.conf")
                        .facts()
                        .configuration()
                        .files();
        assertEquals("/opt/nccl.conf", files.getFirst().path());
        assertEquals("absent", files.getFirst().state());
        assertEquals(2, files.size());
    }

    @Test
    void aUserWithoutAHomeHasNoFile() {
        List<ConfigFile> files =
                machine().property("user.home", "?").facts().configuration().files();
        assertEquals(List.of("/etc/nccl.conf"), files.stream().map(ConfigFile::path).toList());
    }

    @Test
    void showsVariablesThatMatterAndNoSecrets() {
        Facts.Configuration c =
                machine()
                        .variable("NCCL_IB_HCA", "mlx5")
                        .variable("UCX_API_TOKEN", "t0ps3cret")
                        .variable("OMPI_MCA_proxy", "http://ada:t0ps3cret@host/")
                        .variable("JCCL_PASSWORD_FILE", "t0ps3cret")
                        .variable("AWS_SECRET_ACCESS_KEY", "t0ps3cret")
                        .variable("HOME", "/home/ada")
                        .property("jccl.shm.dir", "/mnt/shm")
                        .facts()
                        .configuration();
        assertEquals(
                List.of(
                        new Variable("JCCL_PASSWORD_FILE", "(hidden)"),
                        new Variable("NCCL_IB_HCA", "mlx5"),
                        new Variable("OMPI_MCA_proxy", "http://(hidden)@host/"),
                        new Variable("UCX_API_TOKEN", "(hidden)")),
                c.variables());
        assertEquals(List.of(new Variable("jccl.shm.dir", "/mnt/shm")), c.properties());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "/.dockerenv||Docker",
                "/run/.containerenv||Podman",
                "/proc/1/cgroup|0::/kubepods/burstable/pod1|kubepods",
                "/proc/self/mountinfo|30 20 0:1 / / rw - overlay overlay rw|overlay",
            })
    void seesContainers(String path, String text, String sign) {
        Facts.Container c = machine().file(path, text == null ? "" : text).facts().container();
        assertTrue(c.detected());
        assertTrue(c.signs().getFirst().contains(sign), c.signs()::toString);
    }

    @Test
    void seesWhatContainersTakeAway() {
        Facts.Container c =
                machine()
                        .variable("KUBERNETES_SERVICE_HOST", "10.0.0.1")
                        .file(
                                "/proc/self/status",
                                "CapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n")
                        .file("/etc/systemd/logind.conf", "RemoveIPC=no\n")
                        .file("/etc/systemd/logind.conf.d/10-a.conf", "[Login]\nRemoveIPC = yes\n")
                        .facts()
                        .container();
        assertTrue(c.detected());
        assertEquals(Reading.known("filter"), c.seccomp());
        assertEquals(Reading.known(false), c.sysNice());
        assertEquals(Reading.known("yes"), c.removeIpc());
    }

    @Test
    void anEmptyRootIsAllUnknown() {
        Facts f = machine().facts();
        assertUnknown("no /proc/sys/kernel/osrelease", f.os().kernel());
        assertUnknown("no /proc/cpuinfo", f.cpu().model());
        assertUnknown("no /sys/devices/system/cpu/online", f.cpu().sockets());
        assertUnknown("no /sys/devices/system/node", f.cpu().numaNodes());
        assertUnknown("no /proc/self/cgroup", f.memory().limitBytes());
        assertUnknown("no /dev/shm", f.memory().devShm());
        assertUnknown("no /proc/self/limits", f.memory().memlockBytes());
        assertUnknown("no /proc/driver/nvidia/version", f.driver().version());
        assertUnknown("no readable", f.container().removeIpc());
        assertTrue(f.gpus().isEmpty());
        assertTrue(f.network().devices().isEmpty());
    }

    @Test
    void garbageIsUnknown() throws IOException {
        machine().eightGpus();
        byte[] garbage = new byte[5000];
        for (int i = 0; i < garbage.length; i++) {
            garbage[i] = (byte) (i * 37 + 11);
        }
        List<Path> files;
        try (var all = Files.walk(root)) {
            files = all.filter(Files::isRegularFile).toList();
        }
        for (Path file : files) {
            Files.write(file, garbage);
        }
        Report report = machine().report();
        assertFalse(report.facts().cpu().sockets().fits(n -> n != 1));
        assertUnknown("makes no sense", report.facts().driver().version());
        assertUnknown("makes no sense", report.facts().cpu().threads());
        String text = report.text();
        assertFalse(text.chars().anyMatch(c -> c != '\n' && Character.isISOControl(c)), text);
        assertFalse(report.json().isEmpty());
    }

    @Test
    void whatIsNoFileIsNotOpened() throws Exception {
        machine().folder("/proc/meminfo").folder("/etc");
        Process mkfifo =
                new ProcessBuilder("mkfifo", root.resolve("etc/nccl.conf").toString()).start();
        assumeFalse(mkfifo.waitFor() != 0, "there is no mkfifo");
        Facts f = machine().facts();
        assertUnknown("no plain file", f.memory().totalBytes());
        assertTrue(f.configuration().files().get(1).state().contains("no plain file"));
    }

    @Test
    void whatIsForbiddenSaysSo() throws IOException {
        machine().file("/proc/meminfo", "MemTotal: 1 kB\n").file("/dev/nvidia0", "");
        var none = PosixFilePermissions.fromString("---------");
        Path meminfo = root.resolve("proc/meminfo");
        Files.setPosixFilePermissions(meminfo, none);
        assumeFalse(Files.isReadable(meminfo), "root may read everything");
        Files.setPosixFilePermissions(root.resolve("dev/nvidia0"), none);
        Facts f = machine().facts();
        assertUnknown("not allowed to read /proc/meminfo", f.memory().totalBytes());
        assertFalse(f.driver().deviceNodes().getFirst().readable());
    }
}

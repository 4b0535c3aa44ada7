package io.jccl.topology.read;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A tree of files and symbolic links as Linux has it in /sys. */
final class FakeSys {
    static final String SLOW = "2.5 GT/s PCIe";
    static final String GEN4 = "16.0 GT/s PCIe";
    static final String GEN5 = "32.0 GT/s PCIe";

    final Path root;

    FakeSys(Path directory) throws IOException {
        root = directory.resolve("sys");
        Files.createDirectories(root.resolve("bus/pci/devices"));
        Files.createDirectories(root.resolve("class/net"));
    }

    FakeSys write(String file, String text) throws IOException {
        Path path = root.resolve(file).normalize();
        Files.createDirectories(path.getParent());
        Files.writeString(path, text);
        return this;
    }

    FakeSys cpuinfo(String text) throws IOException {
        return write("../proc/cpuinfo", text);
    }

    FakeSys node(int id, String cpus) throws IOException {
        return write("devices/system/node/node" + id + "/cpulist", cpus + "\n");
    }

    /** A PCI device below devices/, linked from the bus. */
    FakeSys device(String path, String kind, String vendor, int numa) throws IOException {
        String dir = "devices/" + path;
        write(dir + "/class", kind + "\n");
        write(dir + "/vendor", vendor + "\n");
        write(dir + "/numa_node", numa + "\n");
        String address = path.substring(path.lastIndexOf('/') + 1);
        link("bus/pci/devices/" + address, dir);
        return this;
    }

    FakeSys speed(String path, String current, String max, int width) throws IOException {
        String dir = "devices/" + path;
        write(dir + "/current_link_speed", current + "\n");
        write(dir + "/max_link_speed", max + "\n");
        write(dir + "/current_link_width", width + "\n");
        write(dir + "/max_link_width", "16\n");
        return this;
    }

    FakeSys infiniband(String device, String path, String rate) throws IOException {
        String dir = "devices/" + path + "/infiniband/" + device;
        write(dir + "/ports/1/rate", rate + "\n");
        link("class/infiniband/" + device, dir);
        return this;
    }

    FakeSys net(String name, String path, String speed) throws IOException {
        String dir = "devices/" + path + "/net/" + name;
        write(dir + "/speed", speed + "\n");
        link("class/net/" + name, dir);
        return this;
    }

    private void link(String link, String target) throws IOException {
        Path at = root.resolve(link);
        Path directory = at.resolveSibling("");
        Files.createDirectories(directory);
        Files.createSymbolicLink(at, directory.relativize(root.resolve(target)));
    }

    static final String SWITCH0 = "pci0000:10/0000:10:01.0/0000:11:00.0";
    static final String GPU0 = SWITCH0 + "/0000:12:00.0/0000:13:00.0";
    static final String GPU1 = SWITCH0 + "/0000:12:01.0/0000:14:00.0";
    static final String NIC0 = SWITCH0 + "/0000:12:02.0/0000:15:00.0";
    static final String GPU2 = "pci0000:90/0000:90:01.0/0000:91:00.0";

    /**
     * Two sockets. On the first a switch with two GPUs, asleep, and a NIC; on the other a GPU, and
     * a network card that is down.
     */
    static FakeSys twoSockets(Path directory) throws IOException {
        FakeSys s = new FakeSys(directory);
        s.cpuinfo("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n");
        s.node(0, "0-7,16-23").node(1, "8-15,24-31").node(2, "");
        s.device("pci0000:10/0000:10:01.0", "0x060400", "0x8086", 0);
        s.device(SWITCH0, "0x060400", "0x1000", 0).speed(SWITCH0, GEN5, GEN5, 16);
        for (int port = 0; port < 3; port++) {
            String path = SWITCH0 + "/0000:12:0" + port + ".0";
            s.device(path, "0x060400", "0x1000", 0).speed(path, GEN5, GEN5, 16);
        }
        s.device(GPU0, "0x030200", "0x10de", 0).speed(GPU0, SLOW, GEN5, 16);
        s.device(GPU1, "0x030200", "0x10de", 0).speed(GPU1, SLOW, GEN5, 8);
        s.device(NIC0, "0x020700", "0x15b3", 0).speed(NIC0, GEN4, GEN5, 16);
        s.infiniband("mlx5_0", NIC0, "400 Gb/sec (4X NDR)").net("ib0", NIC0, "-1");
        s.device("pci0000:90/0000:90:01.0", "0x060400", "0x8086", 1);
        s.speed("pci0000:90/0000:90:01.0", GEN5, GEN4, 16);
        s.device(GPU2, "0x030200", "0x10de", 1).speed(GPU2, GEN4, GEN5, 16);
        String eth = "pci0000:80/0000:80:02.0/0000:81:00.0";
        s.device(eth, "0x020000", "0x8086", 1).speed(eth, "8.0 GT/s PCIe", "8.0 GT/s PCIe", 4);
        s.net("eno1", eth, "25000");
        // What is neither.
        s.device("pci0000:80/0000:80:01.0", "0x010802", "0x144d", 1);
        s.device("pci0000:80/0000:80:03.0", "0x030000", "0x1a03", 1);
        s.write("devices/virtual/net/lo/speed", "0\n");
        s.link("class/net/lo", "devices/virtual/net/lo");
        return s;
    }
}

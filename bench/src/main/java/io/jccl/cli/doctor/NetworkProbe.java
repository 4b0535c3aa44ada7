package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.Nic;
import io.jccl.cli.doctor.Facts.Port;

/** Reads InfiniBand and RoCE devices. */
final class NetworkProbe {
    private static final String CLASS = "/sys/class/infiniband/";

    private NetworkProbe() {}

    static Facts.Network examine(Machine machine) {
        MachineFiles files = machine.files();
        return new Facts.Network(
                files.names(CLASS, ".+").stream().map(n -> nic(files, n)).toList(),
                files.names("/dev/infiniband", "uverbs\\d+"));
    }

    private static Nic nic(MachineFiles files, String name) {
        String ports = CLASS + name + "/ports";
        return new Nic(
                name,
                files.realPath(CLASS + name + "/device")
                        .map(p -> p.substring(p.lastIndexOf('/') + 1)),
                files.number(CLASS + name + "/device/numa_node").map(Math::toIntExact),
                files.names(ports, "\\d+").stream()
                        .map(p -> port(files, p, ports + "/" + p))
                        .toList());
    }

    private static Port port(MachineFiles files, String number, String folder) {
        return new Port(
                number,
                files.text(folder + "/link_layer"),
                // Such as 4: ACTIVE
                files.text(folder + "/state").map(s -> s.replaceFirst("^\\d+: *", "")),
                files.text(folder + "/rate"));
    }
}

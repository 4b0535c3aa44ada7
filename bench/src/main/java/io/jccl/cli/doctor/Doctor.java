package io.jccl.cli.doctor;

import java.util.Collection;
import java.util.List;

/** Examines machines. */
public final class Doctor {
    private Doctor() {}

    /**
     * Examines a machine. A value that cannot be read is unknown; nothing is thrown.
     *
     * @param version JCCL's version
     * @param machine what to examine
     * @param required what the caller needs
     * @return the report
     */
    public static Report examine(
            String version, Machine machine, Collection<Requirement> required) {
        Facts facts = facts(machine);
        List<Requirement.Result> results =
                required.stream().sorted().distinct().map(r -> r.check(facts)).toList();
        return new Report(version, facts, Checks.problems(facts, results), results, null);
    }

    private static Facts facts(Machine machine) {
        Cgroups cgroups = new Cgroups(machine.files());
        return new Facts(
                machine.hostEngine().get(),
                SystemProbe.os(machine),
                machine.java(),
                CpuProbe.examine(machine, cgroups),
                MemoryProbe.examine(machine, cgroups),
                DriverProbe.examine(machine),
                GpuBusProbe.examine(machine),
                NetworkProbe.examine(machine),
                LibraryProbe.examine(machine),
                ConfigurationProbe.examine(machine),
                ContainerProbe.examine(machine, cgroups));
    }
}

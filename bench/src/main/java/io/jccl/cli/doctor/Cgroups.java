package io.jccl.cli.doctor;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;

/**
 * The control groups of this process, of either version. A limit applies to all groups below, so
 * the effective limit is the lowest from the process's own group up to the root.
 */
final class Cgroups {
    /** Version 1 reports "no limit" as a number near 2^63. */
    private static final long NO_LIMIT = 1L << 60;

    private static final String DEFAULT_MOUNT = "/sys/fs/cgroup";

    /**
     * A mounted hierarchy.
     *
     * @param controllers those of version 1; none for version 2
     * @param root the group that the mount point shows
     */
    private record Mount(boolean v2, List<String> controllers, String root, String point) {}

    /** This process's group in a hierarchy. */
    private record Membership(List<String> controllers, String path) {}

    private final MachineFiles files;
    private final List<Mount> mounts;
    private final Reading<List<Membership>> memberships;

    Cgroups(MachineFiles files) {
        this.files = files;
        this.mounts =
                files.lines("/proc/self/mountinfo").orElse(List.of()).stream()
                        .map(Cgroups::mount)
                        .flatMap(List::stream)
                        .toList();
        this.memberships = files.lines("/proc/self/cgroup").map(Cgroups::memberships);
    }

    /** Format: {@code id parent device root point options... - type source superOptions}. */
    private static List<Mount> mount(String line) {
        String[] halves = line.split(" - ", 2);
        if (halves.length < 2) {
            return List.of();
        }
        String[] front = halves[0].split(" ", -1);
        String[] back = halves[1].split(" ", -1);
        boolean v2 = back[0].equals("cgroup2");
        if (front.length < 5 || back.length < 3 || (!v2 && !back[0].equals("cgroup"))) {
            return List.of();
        }
        return List.of(new Mount(v2, List.of(back[2].split(",")), front[3], front[4]));
    }

    private static List<Membership> memberships(List<String> lines) {
        List<Membership> all = new ArrayList<>();
        for (String line : lines) {
            String[] parts = line.split(":", 3);
            if (parts.length == 3) {
                all.add(new Membership(Arrays.asList(parts[1].split(",")), parts[2]));
            }
        }
        return List.copyOf(all);
    }

    /** The hierarchy that limits memory. */
    Reading<String> version() {
        return memberships.flatMap(all -> {
            if (all.stream().anyMatch(m -> m.controllers.contains("memory"))) {
                return Reading.known("v1");
            }
            return all.stream().anyMatch(m -> m.controllers.contains(""))
                    ? Reading.known("v2")
                    : Reading.unknown("no memory controller in /proc/self/cgroup");
        });
    }

    /** Bytes, or -1. */
    Reading<Long> memoryLimit() {
        return limit(
                        "memory",
                        folder -> files.number(folder + "/memory.limit_in_bytes"),
                        folder -> files.text(folder + "/memory.max").map(Cgroups::bytes))
                .map(l -> l >= NO_LIMIT ? -1 : l.longValue());
    }

    private static double bytes(String max) {
        return max.equals("max") ? Double.MAX_VALUE : Long.parseLong(max);
    }

    /** The limit in CPUs, or -1. */
    Reading<Double> cpuLimit() {
        return limit(
                        "cpu",
                        this::cpuV1,
                        folder -> files.text(folder + "/cpu.max").map(Cgroups::cpus))
                .map(l -> l >= NO_LIMIT ? -1 : l);
    }

    private Reading<Double> cpuV1(String folder) {
        return files.number(folder + "/cpu.cfs_quota_us")
                .flatMap(quota ->
                        files.number(folder + "/cpu.cfs_period_us")
                                .map(period ->
                                        quota < 0 ? Double.MAX_VALUE : share(quota, period)));
    }

    /** Format: {@code quota period}, where the quota may be {@code max}. */
    private static double cpus(String max) {
        String[] parts = max.split(" ", -1);
        return parts[0].equals("max")
                ? Double.MAX_VALUE
                : share(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
    }

    private static double share(long quota, long period) {
        if (quota <= 0 || period <= 0) {
            throw new IllegalArgumentException("no share of time");
        }
        return (double) quota / period;
    }

    private Reading<Double> limit(
            String controller,
            Function<String, ? extends Reading<? extends Number>> v1,
            Function<String, ? extends Reading<? extends Number>> v2) {
        return memberships.flatMap(all -> {
            for (Membership m : all) {
                if (m.controllers.contains(controller)) {
                    return strictest(m.path, mountOf(controller), v1);
                }
            }
            for (Membership m : all) {
                if (m.controllers.contains("")) {
                    return strictest(m.path, mountOf(""), v2);
                }
            }
            return Reading.unknown("no " + controller + " controller in /proc/self/cgroup");
        });
    }

    private Mount mountOf(String controller) {
        boolean v2 = controller.isEmpty();
        for (Mount m : mounts) {
            if (v2 ? m.v2 : !m.v2 && m.controllers.contains(controller)) {
                return m;
            }
        }
        return new Mount(v2, List.of(), "/", v2 ? DEFAULT_MOUNT : DEFAULT_MOUNT + "/" + controller);
    }

    /**
     * The lowest limit from the group up to the root, which may have no limits and no files for
     * them.
     */
    private Reading<Double> strictest(
            String path, Mount mount, Function<String, ? extends Reading<? extends Number>> read) {
        // Without a cgroup namespace, a container sees a mount of its own group, but the path as on
        // the host.
        String below = mount.root.equals("/") ? path : "";
        if (!files.exists(mount.point)) {
            return Reading.unknown("no " + mount.point);
        }
        if (path.startsWith(mount.root + "/")) {
            below = path.substring(mount.root.length());
        }
        if (below.equals("/") || below.contains("..")) {
            below = "";
        }
        double least = Double.MAX_VALUE;
        for (; ; below = below.substring(0, below.lastIndexOf('/'))) {
            if (read.apply(mount.point + below) instanceof Reading.Known<? extends Number>(var n)) {
                least = Math.min(least, n.doubleValue());
            }
            if (below.isEmpty()) {
                return Reading.known(least);
            }
        }
    }
}

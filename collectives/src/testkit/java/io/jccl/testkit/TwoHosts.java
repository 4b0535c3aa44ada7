package io.jccl.testkit;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Assumptions;

/**
 * Two network namespaces as two hosts, with a link between them and Open MPI on TCP; needs root.
 * What starts Open MPI's daemon on the other host enters the namespace instead of calling ssh. The
 * hosts share all folders.
 */
public final class TwoHosts implements AutoCloseable {
    private static final String NETWORK = "10.77.213.";
    private static final List<String> HOSTS = List.of("a", "b");
    private static final AtomicInteger MADE = new AtomicInteger();

    /** At most 13 characters: two more follow in names of network devices, which have 15. */
    private final String name = "jccl" + ProcessHandle.current().pid() + MADE.getAndIncrement();

    private final Path agent;

    /** Makes the hosts; skips the test where it cannot. */
    public TwoHosts(Path folder) throws IOException {
        Assumptions.assumeTrue(
                "root".equals(System.getProperty("user.name")), "only root makes namespaces");
        for (String tool : List.of("ip", "unshare", "hostname", "sysctl")) {
            Assumptions.assumeTrue(run("sh", "-c", "command -v " + tool) == 0, "no " + tool);
        }
        Assumptions.assumeTrue(
                run("ip", "netns", "add", name + "a") == 0, "namespaces are not allowed here");
        try {
            must("ip", "netns", "add", name + "b");
            must("ip", "link", "add", name + "va", "type", "veth", "peer", "name", name + "vb");
            for (String host : HOSTS) {
                must("ip", "link", "set", name + "v" + host, "netns", name + host);
                String address = NETWORK + (host.equals("a") ? 1 : 2) + "/24";
                must("ip", "-n", name + host, "addr", "add", address, "dev", name + "v" + host);
                must("ip", "-n", name + host, "link", "set", "lo", "up");
                must("ip", "-n", name + host, "link", "set", name + "v" + host, "up");
            }
            awaitLink();
            agent = folder.resolve("agent-" + name);
            Files.writeString(
                    agent,
                    "#!/bin/sh\nshift\nexec ip netns exec %sb unshare --uts sh -c 'hostname %sb; exec sh -c \"$0\"' \"$*\"\n"
                            .formatted(name, name));
            Files.setPosixFilePermissions(agent, PosixFilePermissions.fromString("rwx------"));
        } catch (IOException | RuntimeException | Error e) {
            close();
            throw e;
        }
    }

    /** Cuts the link. */
    public void cut() throws IOException {
        must("ip", "-n", name + "a", "link", "set", name + "va", "down");
    }

    /** Mends the link. */
    public void mend() throws IOException {
        must("ip", "-n", name + "a", "link", "set", name + "va", "up");
        awaitLink();
    }

    /** The kernel has a link work some time after it was told to, and remembers who was away. */
    private void awaitLink() throws IOException {
        for (String host : HOSTS) {
            String up = "ip -n " + name + host + " -o link show " + name + "v" + host;
            must(
                    "sh",
                    "-c",
                    "for i in $(seq 300); do "
                            + up
                            + " | grep -q 'state UP' && exit 0; sleep 0.1; done; exit 1");
        }
        for (String host : HOSTS) {
            run("ip", "-n", name + host, "neigh", "flush", "dev", name + "v" + host);
        }
    }

    /**
     * How often TCP sends again before it takes a peer for lost: 15 times unless this is called,
     * which takes a quarter of an hour; 4 times takes several seconds.
     */
    public void retries(int count) throws IOException {
        for (String host : HOSTS) {
            String setting = "net.ipv4.tcp_retries2=" + count;
            must("ip", "netns", "exec", name + host, "sysctl", "-q", "-w", setting);
        }
    }

    /** Flags of Open MPI's launcher for two ranks, one on each host. */
    public List<String> flags() {
        String network = NETWORK + "0/24";
        return List.of(
                "--mca",
                "plm_rsh_agent",
                agent.toString(),
                "--host",
                NETWORK + "1:1," + NETWORK + "2:1",
                "--mca",
                "btl_tcp_if_include",
                network,
                "--mca",
                "oob_tcp_if_include",
                network);
    }

    /** A command, to be run on the first host. */
    public List<String> onFirst(List<String> command) {
        String named = "hostname " + name + "a; exec \"$@\"";
        List<String> all =
                new ArrayList<>(
                        List.of("ip", "netns", "exec", name + "a", "unshare", "--uts", "sh", "-c"));
        all.add(named);
        all.add("sh");
        all.addAll(command);
        return all;
    }

    /** What runs on a host, a line for each process: its number and its command. */
    public List<String> processes() throws IOException {
        List<String> lines = new ArrayList<>();
        for (String host : HOSTS) {
            Process p =
                    new ProcessBuilder(
                                    "sh",
                                    "-c",
                                    "for p in $(ip netns pids "
                                            + name
                                            + host
                                            + "); do echo $p $(tr '\\0' ' ' </proc/$p/cmdline); done")
                            .redirectError(ProcessBuilder.Redirect.DISCARD)
                            .start();
            String text = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            end(p);
            text.lines().map(l -> "host " + host + ": " + l).forEach(lines::add);
        }
        return lines;
    }

    /** Ends whatever still runs there, and takes the hosts away. */
    @Override
    public void close() throws IOException {
        for (String host : HOSTS) {
            // Whatever a cut link has left behind there.
            run("sh", "-c", "for p in $(ip netns pids " + name + host + "); do kill -9 $p; done");
            run("ip", "netns", "del", name + host);
        }
    }

    private static int run(String... command) throws IOException {
        return end(
                new ProcessBuilder(command)
                        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start());
    }

    private static int end(Process p) {
        try {
            return p.waitFor();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void must(String... command) throws IOException {
        int status = run(command);
        if (status != 0) {
            throw new AssertionError(
                    "status " + status + " instead of 0: " + String.join(" ", command));
        }
    }
}

package io.jccl.spark;

import io.jccl.LocalJob;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Where one task runs, and the address of rank 0's store: the message of a task to the others
 * before they share a communicator.
 *
 * @param host name or address of the machine in Spark
 * @param memory identifies the memory that this task can share; equal on tasks that can share it
 * @param pid process number
 * @param device a device's name, such as {@code cuda:0}
 * @param gpu identifies a CUDA device among those of all tasks; empty on the host device
 * @param job name of the run; rank 0's is used
 * @param store port and secret of rank 0's store, separated by a space; empty if it serves none
 */
record Seat(
        String host, String memory, long pid, String device, String gpu, String job, String store) {
    /** The first field; a message of another version is refused. */
    private static final String FORMAT = "jccl-spark-1";

    private static final Path BOOT = Path.of("/proc/sys/kernel/random/boot_id");

    /** This task's seat. */
    static Seat here(String address, Device device, String job, String store) {
        String memory = memory(host(address));
        String gpu =
                device.kind() == Device.Kind.HOST
                        ? ""
                        : memory + " " + System.getenv("CUDA_VISIBLE_DEVICES") + " " + device;
        long pid = ProcessHandle.current().pid();
        return new Seat(host(address), memory, pid, device.toString(), gpu, job, store);
    }

    /** The host without the port, which Spark appends, and which is missing for some masters. */
    static String host(String address) {
        int colon = address.lastIndexOf(':');
        return colon > 0 && colon > address.lastIndexOf(']')
                ? address.substring(0, colon)
                : address;
    }

    /**
     * The running kernel and the file system that {@link LocalJob#sharedFolder} is on. Containers
     * of one machine may have the same host name, but not the same file system.
     */
    private static String memory(String host) {
        Path folder = LocalJob.sharedFolder();
        try {
            return Files.readString(BOOT).strip()
                    + " "
                    + Files.getAttribute(folder, "unix:dev")
                    + " "
                    + folder.toRealPath();
        } catch (IOException | UnsupportedOperationException e) {
            // Not Linux: one host name in Spark is taken for one machine.
            return host + " " + folder;
        }
    }

    /** Encodes it as one line. */
    String text() {
        return Stream.of(FORMAT, host, memory, Long.toString(pid), device, gpu, job, store)
                .map(field -> URLEncoder.encode(field, StandardCharsets.UTF_8))
                .collect(Collectors.joining("&"));
    }

    /** Decodes a line. */
    static Seat parse(int rank, String text) {
        String[] f =
                Arrays.stream(text.split("&", -1))
                        .map(field -> URLDecoder.decode(field, StandardCharsets.UTF_8))
                        .toArray(String[]::new);
        if (f.length != 8 || !f[0].equals(FORMAT)) {
            throw new JcclException(
                    ("rank %s said '%s', expected %s and seven fields: its executor has another"
                                    + " version of jccl-spark, or its task calls"
                                    + " BarrierTaskContext.allGather where the others join; give"
                                    + " all executors the same jars and let all tasks make the"
                                    + " same calls")
                            .formatted(rank, text, FORMAT));
        }
        return new Seat(f[1], f[2], Long.parseLong(f[3]), f[4], f[5], f[6], f[7]);
    }

    /** For messages. */
    String describe() {
        return device + " on " + host + " (process " + pid + ")";
    }
}

package io.jccl.cli.doctor;

import io.jccl.bindings.NativeLibraries;
import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * A machine to examine: everything that the probes read.
 *
 * @param files its files
 * @param environment this process's environment variables
 * @param properties this JVM's system properties
 * @param java this JVM
 * @param processors how many processors the JVM counts
 * @param disks its file systems
 * @param hostEngine tests the host engine
 * @param libraries finds native libraries
 * @param gpus queries CUDA
 * @param patience time limit of each of these
 */
public record Machine(
        MachineFiles files,
        Map<String, String> environment,
        Map<String, String> properties,
        Facts.Java java,
        int processors,
        Disks disks,
        Supplier<Facts.HostEngine> hostEngine,
        Libraries libraries,
        GpuProbe gpus,
        Duration patience) {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    /** Sizes of file systems. */
    public interface Disks {
        /**
         * Queries the file system of a folder.
         *
         * @param folder absolute path
         * @return its size and type
         * @throws IOException if the query fails
         */
        Facts.Space space(String folder) throws IOException;
    }

    /**
     * This machine.
     *
     * @return as seen by this process
     */
    public static Machine local() {
        Map<String, String> properties =
                System.getProperties().stringPropertyNames().stream()
                        .collect(Collectors.toMap(n -> n, n -> System.getProperty(n, "")));
        return new Machine(
                new MachineFiles(Path.of("/")),
                System.getenv(),
                properties,
                SystemProbe.thisJvm(),
                Runtime.getRuntime().availableProcessors(),
                Machine::space,
                HostEngineCheck::run,
                Libraries.INSTALLED,
                new CudaGpuProbe(NativeLibraries::cuda),
                PATIENCE);
    }

    static Facts.Space space(String folder) throws IOException {
        FileStore store = Files.getFileStore(Path.of(folder));
        return new Facts.Space(store.getTotalSpace(), store.getUsableSpace(), store.type());
    }

    String property(String name) {
        return properties.getOrDefault(name, "unknown");
    }
}

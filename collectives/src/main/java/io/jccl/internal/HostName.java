package io.jccl.internal;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The name of this machine, as messages, histories and reports give it. */
public final class HostName {
    /**
     * The kernel's name where there is one: it needs no name server, and {@code HOSTNAME} may come
     * from the machine on which a job was submitted.
     */
    public static final String OWN = own();

    private HostName() {}

    private static String own() {
        try {
            String name = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
            if (!name.isEmpty()) {
                return name;
            }
        } catch (IOException e) {
            // Not Linux.
        }
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            return System.getenv().getOrDefault("HOSTNAME", "localhost");
        }
    }
}

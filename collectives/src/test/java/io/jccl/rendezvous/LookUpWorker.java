package io.jccl.rendezvous;

import io.jccl.error.JcclTimeoutException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.stream.Collectors;

/** Looks up a name in a file that answers only once it is written: a pipe. */
final class LookUpWorker {
    private LookUpWorker() {}

    /**
     * Prints how connecting ends, and that nothing is left of it.
     *
     * @param args the pipe
     * @throws Exception never
     */
    public static void main(String[] args) throws Exception {
        try {
            Store.connect("node0:1", StoreSecret.of("secret"), Duration.ofMillis(300));
        } catch (JcclTimeoutException e) {
            System.out.println(e.getMessage());
        }
        Thread client =
                Thread.getAllStackTraces().keySet().stream()
                        .filter(t -> t.getName().equals("jccl-store-client"))
                        .findFirst()
                        .orElseThrow();
        System.out.println("still looking up");
        Files.writeString(Path.of(args[0]), "192.0.2.1 node1\n");
        client.join();
        Set<String> kinds;
        try (var all = Files.list(Path.of("/proc/self/fd"))) {
            kinds = all.map(LookUpWorker::kind).collect(Collectors.toSet());
        }
        System.out.println("left: " + kinds.contains("anon_inode:[eventpoll]"));
    }

    private static String kind(Path descriptor) {
        try {
            return Files.readSymbolicLink(descriptor).toString();
        } catch (IOException e) {
            return ""; // that of the listing itself
        }
    }
}

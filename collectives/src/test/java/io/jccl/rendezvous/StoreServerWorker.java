package io.jccl.rendezvous;

import java.util.Map;

/** A process that serves a store and nothing else. */
public final class StoreServerWorker {
    private StoreServerWorker() {}

    /**
     * Runs until it is killed.
     *
     * @param args address and port to listen on
     * @throws InterruptedException never
     */
    public static void main(String[] args) throws InterruptedException {
        Map<String, String> env = System.getenv();
        StoreSecret secret = StoreSecret.fromEnvironment(env, LaunchEnvironment.of(env).jobId());
        try (StoreServer server = StoreServer.open(args[0], Integer.parseInt(args[1]), secret)) {
            System.out.println("PORT " + server.port());
            Thread.sleep(Long.MAX_VALUE);
        }
    }
}
